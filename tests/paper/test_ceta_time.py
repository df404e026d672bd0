"""CETA at a time of its own: each pair comes again at that time, and trains nothing but CETA."""

import torch

from scripts.method import losses
from scripts.paper.ceta_time import TimedFlowBatch, TimedFlowLoss
from scripts.train.batches import PrecisionInferer
from tests import paper_values as paper
from tests.method.test_losses import images, path
from tests.train.test_batches import PAIRED, THICK, batch, flow_batch


def test_ceta_at_a_time_of_its_own_sees_each_pair_again_beside_the_flows_samples(drift):
    data, pairs = batch(), len(PAIRED)
    torch.manual_seed(0)
    _, plain, (lengths, _), _ = flow_batch(drift.apn)(data, "cpu")
    torch.manual_seed(0)
    timed = TimedFlowBatch(drift.apn, PrecisionInferer(bfloat16=False), paper.ENDPOINT_ALPHA, ceta_time=0.25)
    xt, path, (thickness, t), _ = timed(data, "cpu")
    count = len(plain.t)
    assert len(xt) == count + 2 * pairs
    assert torch.equal(xt[:count], plain.xt) and torch.equal(t[:count], plain.t)
    assert (t[count:] == 0.25).all()
    assert path.partner.tolist() == list(range(count, count + pairs))
    members = torch.tensor([*PAIRED, *range(len(THICK), count)])
    assert torch.equal(thickness[count:], lengths[members]) and torch.equal(path.x0[count:], plain.x0[members])
    torch.testing.assert_close(xt[count:], 0.75 * plain.x0[members] + 0.25 * plain.x1[members])


def test_samples_that_are_cetas_alone_do_not_train_the_velocity():
    x0, x1, v = images(4, seed=1), images(4, seed=2), images(4, seed=3).requires_grad_()
    sample = path(x0, x1, [2])
    loss = TimedFlowLoss(paper.HUBER_DELTA, paper.CETA_WEIGHT)
    alone = losses.FlowLoss(paper.HUBER_DELTA, 0.0)(v[:2], path(x0[:2], x1[:2]))
    torch.testing.assert_close(loss(v, sample), alone + losses.ceta(v, sample))
    TimedFlowLoss(paper.HUBER_DELTA, 0.0)(v, sample).backward()
    assert torch.equal(v.grad[2:], torch.zeros_like(v.grad[2:])) and v.grad[:2].abs().min() > 0
