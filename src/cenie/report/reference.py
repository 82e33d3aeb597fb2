"""What the CENIE paper prints, to stand beside our figures (Teoh, Li and Varakantham, NeurIPS 2024).

The runs of the paper had another budget than most of ours: 30,000 updates on mazes and walkers, 2,750 on the
racing car, five seeds. These are its numbers, not ours, and every table says so.
"""

from dataclasses import dataclass

SOURCE = "the CENIE paper (NeurIPS 2024)"


@dataclass(frozen=True)
class Reference:
    """Numbers that the paper prints, by method: what they are, and after how many updates."""

    what: str
    budget: str
    values: dict[str, str]


_F1_METHODS = ("dr", "minimax", "paired", "diplr", "plr-robust", "plr-cenie", "plr-cenie-dagger")
_F1_ROWS = """
Australia    304 133  107  97  224 173  715  50  574  69  745  32  616 45
Austria      299 118  152 106  159 160  587  49  458  44  566  38  496 46
Bahrain      208 136   44 101  118 159  514  48  377  75  537  58  453 38
Belgium      225 104  131  87  110 100  440  31  362  36  500  41  436 35
Brazil       192 106   57  61  147 124  451  39  368  42  485  27  312 40
China        -35  57  -29  80  -71  63   93 102  -23  28  278 100  281 52
France       124 111   48 129    8 126  487  75  311  98  564  65  435 97
Germany      172 105   94 100    2  97  477  59  358  35  512  80  500 82
Hungary      319 155  133 113  139 161  686  50  597  72  678  40  604 70
Italy        267 114  204  89  198 135  676  30  559  63  708  26  588 34
Malaysia     142 107   39  94   51 104  404  30  265  44  469  79  338 22
Mexico       331 199  193 123  102 169  675  24  570  76  674  51  602 57
Monaco        80  78  100  94   34 111  369 122  139 112  641  46  476 96
Netherlands  143 109  104  95   42  77  540  34  400  61  558  59  403 84
Portugal     174 118   39  94   88 153  412  22  353  27  495  66  394 43
Russia       343 151  118 105  204 163  609  60  644  31  594  58  550 60
Singapore    209 108   75  93   88 153  479  78  423  51  530  48  454 55
Spain        296 133  181 110  249 157  619  39  517  41  588  43  499 39
UK           303 127  187 101  194 156  558  49  443  45  562  26  506 36
USA          173  95   -2  84    2 161  191 110  155  90  416 143  363 61
Mean         214 115   99  92  105 132  499  20  392  28  553  32  465 42
"""


def f1_returns() -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and standard error of the return on each track, and over all of them (`Mean`), by method."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in _F1_ROWS.strip().splitlines():
        track, *numbers = row.split()
        pairs = zip(map(float, numbers[::2]), map(float, numbers[1::2]))
        found[track] = dict(zip(_F1_METHODS, pairs, strict=True))
    return found


COVERAGE = Reference(
    "state-action coverage in BipedalWalker",
    "30,000 updates",
    {"plr-robust": "43.4 %", "plr-cenie": "55.3 %", "accel": "42.5 %", "accel-cenie": "47.6 %"},
)
PERFECT_LARGE = Reference(
    "solved rate on PerfectMazeLarge",
    "30,000 updates",
    {"plr-robust": "less than 10 %", "plr-cenie": "close to 50 %"},
)
WALKER = Reference(
    "aggregate score (IQM) in BipedalWalker",
    "30,000 updates",
    {"accel-cenie": "close to 55 % of optimal"},
)
REFERENCES = {"perfect-large": PERFECT_LARGE, "walker6": WALKER}
"""What the paper prints of single suites."""
