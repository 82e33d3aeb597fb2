"""The text of `cenie --help`."""

from cenie.envs.domains import DOMAINS
from cenie.methods.table import METHODS

USAGE = f"""\
cenie: Unsupervised Environment Design in JAX

  cenie train DOMAIN METHOD [--preset NAME] [--updates N] [--seed S] [--out DIR]
              [--any.field VALUE ...]       train a student; --help lists every setting
              [--new-name]                  take the next free name if the directory holds a run already
              [--report]                    write a report (cenie report) when the run is finished
  cenie train --resume DIR [--updates N] [--decay keep|stretch|restart]
                                            go on after a stop, a crash or a kill, or make a run longer
  cenie evaluate RUN|STUDENT [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]
                                            play held-out levels with the last student(s) of a run
  cenie play RUN|STUDENT [LEVEL] [--out FILE.gif]
                                            film the student on a level of a suite, of the buffer, of a file
  cenie gallery DOMAIN|RUN|STUDENT [LEVEL ...] [--suite NAME] [--out FILE.png]
                                            draw levels side by side, and what the student does on them
  cenie export RUN [--out DIR] [--checkpoint N]
                                            write a student by itself, for others to play: a STUDENT
  cenie watch RUN ... [--port N]            a page of the run in your browser, while it goes on
  cenie report RUN ... [--out DIR]          tables, figures and a page about runs
  cenie compare DOMAIN METHOD ... [--seeds N] [--jobs N] [--out DIR]
                                            train methods with several seeds, evaluate, and report
  cenie cite RUN ...                        BibTeX for the methods and domains of runs
  cenie methods                             the methods that can be trained
  cenie domains [DOMAIN]                    the domains; the generators, suites and presets of one

DOMAIN is one of those below, or package.module:attribute of your own (docs/own-environment.md); to go on
with, or evaluate, a run of your own domain, name it again: --domain package.module:attribute

domains: {", ".join(DOMAINS)}
methods: {", ".join(METHODS)}
"""
