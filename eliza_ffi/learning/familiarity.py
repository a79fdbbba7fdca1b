"""Fit the direction from a head's examples to texts of all kinds.

It is the sum of the weights of ridge regression for each feature, with the target 0 for an example
and 1 for another text. This marks more inputs of other data sets than the Mahalanobis distance from
the examples, which means of short inputs make useless: docs/explanation/calibration.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..decisions.probabilities import Array
from ..evidence.auto_prompts import sample_of
from ..evidence.familiarity import Familiarity
from .heads import Design

MARKED = 0.05
"""The share of inputs like the examples that is marked as unfamiliar."""

PENALTY = 10.0
"""The penalty of ridge regression, divided by the number of values in a state."""

MAX_ROWS = 500
"""The largest number of examples that are used; evenly spaced ones of more."""

TEXTS = tuple(
    """\
The council voted on Tuesday to close two of the city's five libraries.
Preheat the oven to 180 degrees and butter a small baking dish.
def area(r): return 3.14159 * r ** 2
Light rain in the north, dry and windy elsewhere, highs around 12.
The tenant shall pay the rent in advance on the first day of each month.
A fever above 39 degrees that lasts three days should be seen by a doctor.
Let n be an even number larger than two.
2024-03-11 08:14:02 ERROR worker 7: connection reset by peer
She closed the door softly and walked into the dark garden.
United beat City 3-1 after two late goals from the substitute.
haha ok see you at 8 then, bring snacks
Dear Ms. Miller, thank you for your letter of 4 May.
Who painted the ceiling of the chapel?
How do I change the tyre of a bicycle?
The battery died after two weeks and the seller never replied.
Wonderful little hotel, friendly staff, and the breakfast was superb!
Buy one, get one free - this weekend only, at all our shops.
The cell membrane separates the inside of the cell from its environment.
In 1492 three ships left the harbour of Palos.
Turn left at the church, then take the second street on the right.
Shares of the carmaker fell four percent after the profit warning.
{"id": 512, "status": "open", "tags": ["red", "large"]}
Je voudrais une chambre pour deux personnes, s'il vous plait.
Der Zug nach Hamburg hat heute zwanzig Minuten Verspätung.
Roses grow best in full sun and rich, well-drained soil.
Can you send me the slides of this morning's meeting?
I can't log in since the last update, please help.
The film is too long, and the ending makes no sense.
Once upon a time there lived a miller who had three sons.
Mix the blue and the yellow paint until you get an even green.
Mount Kenya, 5,199 m, is the second highest mountain of Africa.
Vote early, vote often, and bring a friend!
Your parcel will be delivered between 10:00 and 12:00.
He has played the violin since he was six.
The program committee accepted 41 of 230 papers.
Why is the sky blue?
Order 66012: two shirts, size M, one belt, black.
No parking between 7 am and 6 pm.
A triangle with sides of 3, 4 and 5 has a right angle.
We regret to inform you that your application was not successful.""".splitlines()
)
"""Texts of all kinds."""


def fit_familiarity(rows: ArrayLike, others: ArrayLike, folds: NDArray[np.intp]) -> Familiarity:
    """Fit the direction from examples to other texts, both of shape [n_features, n, n_embd].

    The threshold comes from cross-validation with these `folds` of the examples, because an example
    is nearer to a fit that used it.
    """
    states, far = np.asarray(rows, dtype=np.float64), np.asarray(others, dtype=np.float64)
    used = sample_of(range(states.shape[1]), MAX_ROWS)
    n = len(used)
    states, folds = states[:, used], folds[used]
    distances = np.empty(n)
    for fold in np.unique(folds):
        fitted = _fitted(states[:, folds != fold], far)
        distances[folds == fold] = fitted.distances(states[:, folds == fold])
    rank = min(n, int(np.ceil((n + 1) * (1 - MARKED))))
    return replace(_fitted(states, far), threshold=float(np.sort(distances)[rank - 1]))


def _fitted(rows: Array, others: Array) -> Familiarity:
    """Return the direction without a threshold."""
    target = np.repeat([0.0, 1.0], [rows.shape[1], others.shape[1]])
    weights = []
    for each in np.concatenate([rows, others], axis=1):
        design = Design(each)
        found = design.solve(PENALTY * each.shape[1], target - target.mean())
        weights.append(found / design.scale)
    mean = rows.mean(axis=1).astype("f4")
    return Familiarity(mean, np.array(weights).astype("f4"), threshold=np.inf)
