"""How a node forwards its journal: through every loss each aggregator has everything, once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from agent.history_forwarding.ack_window import WINDOW, AckWindow, Sent

ROWS = 40


@dataclass
class Listener:
    """An aggregator, by the rule of the channel: what is next is kept, the rest is answered."""

    kept: list[int] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        return self.kept[-1] if self.kept else 0

    def take(self, after: int, upto: int) -> int:
        if after <= self.sequence:
            self.kept += range(self.sequence + 1, upto + 1)
        return self.sequence


@dataclass
class Way:
    """Carries batches and acknowledgements, late, in order, and not all of them."""

    chance: random.Random
    loss: float
    answers: list[tuple[float, int]] = field(default_factory=list)
    carried: int = 0

    def carry(self, now: float, listeners: list[Listener], after: int, upto: int) -> None:
        for listener in listeners:
            if self.chance.random() >= self.loss:
                self.carried += 1
                answer = listener.take(after, upto)
                if self.chance.random() >= self.loss:
                    self.answers.append((now + self.chance.uniform(0.001, 0.2), answer))
        self.answers.sort()


def send_all(course: AckWindow, way: Way, listeners: list[Listener], slice_rows: int) -> None:
    """Send ``ROWS`` rows, and then single ones until every aggregator has the first ones.

    An aggregator that misses the last batch of a journal and shares it with others is corrected by
    the next batch.
    """
    now, rows = 0.0, ROWS
    while any(one.sequence < ROWS for one in listeners) or course.sent:
        assert now < 3000, "they never get there"
        rows = ROWS + int(now / 5) if len(listeners) > 1 else ROWS
        while way.answers and way.answers[0][0] <= now:
            course.acknowledge(way.answers.pop(0)[1], now)
        if course.seconds(now) == 0 and course.repeat(now):
            way.carry(now, listeners, 0, 0)
        while course.may_send() and course.sent_upto is not None and course.sent_upto < rows:
            after, upto = course.sent_upto, min(course.sent_upto + slice_rows, rows)
            course.record_sent(Sent(after, upto, upto - after, 0), now)
            way.carry(now, listeners, after, upto)
        assert len(course.sent) <= WINDOW
        now += 0.05


@pytest.mark.parametrize("loss", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("aggregators", [1, 2, 3])
def test_everything_arrives_once_and_in_order(aggregators: int, loss: float) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        # One may have a part of it already, another may have lost its memory.
        listeners = [Listener(list(range(1, chance.randint(1, 20)))) for _ in range(aggregators)]
        way = Way(chance, loss)
        send_all(AckWindow(0.0), way, listeners, slice_rows=chance.choice([1, 3, 50]))
        assert all(one.kept == list(range(1, len(one.kept) + 1)) for one in listeners), seed


def test_without_loss_nothing_is_reported_twice() -> None:
    way, listener = Way(random.Random(1), 0.0), Listener()
    send_all(AckWindow(0.0), way, [listener], slice_rows=5)
    assert way.carried == ROWS // 5 + 1, "one question, and each slice"


def test_while_no_agent_answers_requests_become_rarer() -> None:
    course = AckWindow(0.0)
    asked = []
    for step in range(600):
        now = step / 10
        if course.seconds(now) == 0:
            assert course.repeat(now)
            asked.append(now)
    assert asked[0] <= 1.1
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[0] <= 2.7
    assert all(3.7 <= pause <= 6.4 for pause in pauses[2:])


def test_while_no_answer_comes_only_the_question_is_sent() -> None:
    course = AckWindow(0.0)
    course.acknowledge(0, 0.0)
    arrived: list[int] = []
    questions = 0
    for step in range(400):
        now = step / 10
        if course.seconds(now) == 0:
            assert course.repeat(now)
            questions += 1
        while course.may_send():
            assert course.sent_upto is not None
            arrived.append(course.sent_upto)
            course.record_sent(Sent(course.sent_upto, course.sent_upto + 1, 1, 0), now)
    assert arrived == list(range(WINDOW))
    assert 6 <= questions <= 12
    course.acknowledge(3, 40.0)
    assert (course.sent_upto, course.may_send()) == (3, True)
