"""The positions that a function reads are found, and no other value is ever read."""

import pytest
import torch
from torch.testing import assert_close

from interp.compat.watched_logits import OfColumns, ReadsMore, columns_of

BATCH, POS, VOCAB = 3, 5, 11
ROWS = torch.arange(BATCH)

AT_ONE = {
    "last": (lambda x: (x[:, -1, 3] - x[:, -1, 4]).mean(), (4, 4, 4)),
    "targets of rows": (lambda x: x[ROWS, -1, torch.tensor([1, 2, 3])].sum(), (4, 4, 4)),
    "any position": (lambda x: x[:, 1].sum() / x.shape[0], (1, 1, 1)),
    "ellipsis": (lambda x: x[..., -2, :].sum(), (3, 3, 3)),
    "slice": (lambda x: x[:, 2:3].sum(), (2, 2, 2)),
    "twice": (lambda x: x[:, -1].sum() - x[:, 4].std(), (4, 4, 4)),
    "own position of each row": (lambda x: x[range(3), [4, 0, 2]].sum(), (4, 0, 2)),
    "one row": (lambda x: x[1, 2, 3], (4, 2, 4)),
    "row, then position": (lambda x: x[0][-2].max(), (3, 4, 4)),
    "rows, then position": (lambda x: x[1:][:, 2].mean(), (4, 2, 2)),
    "probability": (lambda x: x.softmax(-1)[:, -1, 2].mean(), (4, 4, 4)),
    "log probability of a row": (lambda x: x[0].log_softmax(dim=1)[3, 2], (3, 4, 4)),
    "moved": (lambda x: x.cpu().to(torch.float64, copy=True)[:, -1].mean(), (4, 4, 4)),
    "by torch": (lambda x: torch.log_softmax(x.double(), dim=-1)[:, 1].mean(), (1, 1, 1)),
    "described": (lambda x: x[:, -1].sum() if x.ndim == 3 and len(x) == 3 else x.sum(), (4,) * 3),
}
ELSEWHERE = {
    "two positions": lambda x: x[:, -1].sum() - x[:, 0].sum(),
    "several": lambda x: x[:, 1:].sum(),
    "argmax first": lambda x: x.argmax(-1)[:, -1].sum(),
    "a row": lambda x: x[0].sum(),
    "mask": lambda x: x[x > 0].sum(),
    "mask of positions": lambda x: x[:, torch.arange(POS) == 4].sum(),
    "new axis": lambda x: x[:, None, -1].sum(),
    "scaled": lambda x: (2 * x)[:, -1].sum(),
    "stacked": lambda x: torch.stack([x, x])[0, :, -1].sum(),
    "over positions": lambda x: x.softmax(1)[:, -1].sum(),
    "over rows": lambda x: x[0].softmax(0)[-1].sum(),
    "nothing": lambda x: torch.tensor(float(x.shape[0])),
    "all": lambda x: x.softmax(-1)[..., 2].mean() + x.std(),
}


@pytest.fixture
def logits():
    return torch.randn(BATCH, POS, VOCAB, generator=torch.Generator().manual_seed(0))


def at_columns(logits, columns):
    return logits[ROWS, list(columns)]


@pytest.mark.parametrize(("metric", "columns"), AT_ONE.values(), ids=AT_ONE)
def test_one_position_of_each_row(logits, metric, columns):
    assert columns_of(metric, logits) == columns
    of_them = OfColumns(fn=metric, columns_read=columns, n_pos=POS)
    value = of_them.compute(at_columns(logits, columns))
    assert_close(value, metric(logits).expand(BATCH), check_dtype=False)
    others = tuple((column + 1) % POS for column in columns)
    with pytest.raises(ReadsMore):
        OfColumns(fn=metric, columns_read=others, n_pos=POS).compute(at_columns(logits, others))


@pytest.mark.parametrize("metric", ELSEWHERE.values(), ids=ELSEWHERE)
def test_other_functions_need_all_logits(logits, metric):
    assert columns_of(metric, logits) is None
    if metric is ELSEWHERE["nothing"]:
        return  # nothing is what it reads of any logits
    of_last = OfColumns(fn=metric, columns_read=(POS - 1,) * BATCH, n_pos=POS)
    with pytest.raises(ReadsMore):
        of_last.compute(logits[:, -1])


def test_what_is_refused_stays_refused_where_the_function_catches_it(logits):
    def catches(x):
        try:
            return x.mean()
        except Exception:
            return x[:, -1].sum()

    assert columns_of(catches, logits) is None
    with pytest.raises(ReadsMore):
        OfColumns(fn=catches, columns_read=(4, 4, 4), n_pos=POS).compute(logits[:, -1])


def test_the_functions_own_error_comes_through(logits):
    with pytest.raises(ZeroDivisionError):
        columns_of(lambda x: x[:, -1].sum() / (1 // 0), logits)


def test_logits_are_neither_copied_nor_changed(logits):
    before, seen = logits.clone(), []
    columns_of(lambda x: seen.append(x[:, -1]) or x[:, -1].sum(), logits)
    assert type(seen[0]) is torch.Tensor
    assert torch.equal(logits, before)
