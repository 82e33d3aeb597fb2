"""On how many devices a run is split, and which stay idle. Loads no JAX."""

from collections.abc import Iterator

from cenie.experiment.config import Config
from cenie.xla.flags import core_count, show_devices


def prepare_devices(config: Config) -> None:
    """Show every core to JAX as a device of its own, so that both cores of a laptop share the levels.

    What else the domain asks of XLA is passed on, too.
    """
    show_devices(config.device_count(max(core_count(), config.run.devices)), *config.entry.xla_flags)


def unused_devices(config: Config, found: int, *, are_cores: bool) -> Iterator[str]:
    """Yield a note if devices stay idle without anyone's wish; `found` is how many JAX has.

    Where the devices are the host's cores, JAX was shown only as many as the run can use.
    """
    wanted, used = config.run.devices, config.device_count(found)
    if wanted:
        if used < wanted:
            yield f"using {used} of the {wanted} devices of run.devices: there are no more"
        return
    available = found
    if are_cores and found == config.device_count(core_count()):
        available = core_count()
    if used < available:
        student = config.student
        what = "student.num_levels / student.ppo.minibatches"
        if not student.network.recurrent:
            what = "what divides student.num_levels and the steps of a minibatch"
        yield (
            f"using {used} of {available} devices: their number must divide {config.levels_per_minibatch} "
            f"({what})"
        )
