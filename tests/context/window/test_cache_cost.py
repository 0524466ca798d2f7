"""Cache cost: an edit is weighed against the cache it invalidates, at the prices of the model."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recto.context.window.budget import (
    DEFAULT_CACHE_MINIMUM,
    RELATIVE_RATES,
    CacheAge,
    PromptEdit,
    Rates,
    cached_share,
    call_price,
    rates_for,
    remaining_steps,
    requested_lifetime,
    stable_prefix,
    weigh_edit,
)
from recto.tokens.model_card import ModelCard


def card(**fields) -> ModelCard:
    prices = {"input_price": 1000, "cache_read_price": 100, "cache_write_price": 1250, "output_price": 5000}
    return ModelCard(name="m", window=10**6, max_input=10**6, max_output=10**5, **{**prices, **fields})


def edit(**fields) -> PromptEdit:
    return PromptEdit(**{"prefix": 5000, "removed": 10_000, "suffix": 20_000, "steps": 10, **fields})


PLAIN = card()
COLD = CacheAge(idle=inf)
UNPRICED = ModelCard(name="m", window=10**6, max_input=10**6, max_output=10**5)
STEPPED = card(long_from=200_000, long_input_price=2000, long_cache_read_price=200, long_output_price=7000)

amounts = st.integers(0, 400_000)
prefixes = st.integers(DEFAULT_CACHE_MINIMUM, 400_000)
turns = st.integers(0, 60)
models = st.sampled_from([PLAIN, UNPRICED, STEPPED, card(cache_write_price=None), card(cache_read_price=50)])


@given(st.sampled_from([PLAIN, UNPRICED]), prefixes, amounts, amounts, st.integers(1, 60))
@pytest.mark.requirement("window.prefix")
def test_with_a_warm_cache_removed_tokens_times_calls_are_weighed_against_the_suffix(
    model, prefix, removed, suffix, left
):
    verdict = weigh_edit(model, edit(prefix=prefix, removed=removed, suffix=suffix, steps=left))
    prices = rates_for(model, prefix)
    assert verdict.saves == removed * left * prices.read
    assert verdict.costs == suffix * (prices.write - prices.read)
    assert verdict.net == verdict.saves - verdict.costs
    assert verdict.pays == (verdict.net > 0)


def test_one_cache_write_costs_as_much_as_many_reads():
    model = card(cache_read_price=50)
    even = edit(removed=100_000, suffix=100_000, steps=24)
    assert weigh_edit(model, even).net == 0
    assert not weigh_edit(model, even).pays
    assert weigh_edit(model, edit(removed=100_000, suffix=100_000, steps=25)).pays


@given(models, prefixes, amounts, amounts, turns, turns)
def test_an_edit_saves_more_the_more_calls_follow(model, prefix, removed, suffix, first, second):
    fewer, more = sorted((first, second))
    verdicts = [
        weigh_edit(model, edit(prefix=prefix, removed=removed, suffix=suffix, steps=left)) for left in (fewer, more)
    ]
    assert verdicts[0].saves <= verdicts[1].saves
    if fewer:
        assert verdicts[0].net <= verdicts[1].net


@given(models, prefixes, amounts, amounts, amounts, st.integers(1, 60))
def test_an_edit_pays_more_the_more_it_removes(model, prefix, first, second, suffix, left):
    less, more = sorted((first, second))
    nets = [
        weigh_edit(model, edit(prefix=prefix, removed=gone, suffix=suffix, steps=left)).net for gone in (less, more)
    ]
    assert nets[0] <= nets[1]


@given(models, prefixes, amounts, amounts, amounts, st.integers(1, 60))
def test_an_edit_costs_less_the_later_it_is_in_the_prompt(model, prefix, removed, suffix, moved, left):
    early = edit(prefix=prefix, removed=removed, suffix=suffix + moved, steps=left)
    late = edit(prefix=prefix + moved, removed=removed, suffix=suffix, steps=left)
    assert weigh_edit(model, early).costs >= weigh_edit(model, late).costs >= 0
    assert weigh_edit(model, early).saves == weigh_edit(model, late).saves


@given(models, amounts, amounts, amounts, turns, amounts)
def test_an_edit_of_a_cold_prompt_is_free(model, prefix, removed, suffix, left, grows):
    assert (
        weigh_edit(
            model, edit(prefix=prefix, removed=removed, suffix=suffix, steps=left, grows=grows, cache=COLD)
        ).costs
        == 0
    )


def test_an_edit_of_a_cold_prompt_saves_writing_the_removed_tokens():
    assert weigh_edit(PLAIN, edit(steps=10, cache=COLD)).saves == 10_000 * (1250 + 9 * 100)


def test_a_cache_is_cold_after_the_requested_lifetime_or_the_default_of_the_provider():
    assert CacheAge(idle=300).is_cold("anthropic")
    assert not CacheAge(idle=299).is_cold("anthropic")
    assert not CacheAge(idle=3599, ttl=3600).is_cold("anthropic")
    assert CacheAge(idle=3600, ttl=3600).is_cold("anthropic")
    assert not CacheAge(idle=3600).is_cold("openai")
    assert CacheAge(idle=86_400).is_cold("openai")
    assert not CacheAge(idle=10**9).is_cold("somebody")
    assert CacheAge(idle=inf).is_cold("somebody")


def test_an_existing_cache_is_expiring_in_the_last_fifth_of_its_lifetime():
    assert not CacheAge(idle=239).is_expiring("anthropic")
    assert CacheAge(idle=240).is_expiring("anthropic")
    assert not CacheAge(idle=2879, ttl=3600).is_expiring("anthropic")
    assert not CacheAge(idle=inf).is_expiring("anthropic")
    assert not CacheAge(idle=10**9).is_expiring("somebody")


@pytest.mark.parametrize(
    ("payload", "seconds"),
    [
        (b'{"cache_control": {"type": "ephemeral"}}', None),
        (b'{"cache_control": {"type": "ephemeral", "ttl": "5m"}}', 300),
        (b'{"cache_control":{"ttl":"1h","type":"ephemeral"}}', 3600),
        (b'[{"cache_control": {"ttl": "5m"}}, {"cache_control": {"ttl": "1h"}}]', 3600),
        (b'{"text": "\\"cache_control\\": {\\"ttl\\": \\"1h\\"}"}', None),
        (b'{"properties": {"ttl": "1h"}}', None),
        (b"", None),
    ],
)
def test_the_lifetime_is_read_from_the_cache_marks_of_the_client(payload, seconds):
    assert requested_lifetime([b"{}", payload]) == seconds


def test_the_lifetime_of_a_provider_is_found_by_the_model_card():
    hour = CacheAge(idle=3600)
    assert weigh_edit(card(provider="anthropic"), edit(cache=hour)).costs == 0
    assert weigh_edit(card(provider="anthropic"), edit(cache=CacheAge(idle=600, ttl=3600))).costs > 0
    assert weigh_edit(card(provider="openai"), edit(cache=hour)).costs > 0


def test_replacement_text_is_written_and_read_too():
    plain, marked = weigh_edit(PLAIN, edit()), weigh_edit(PLAIN, edit(added=400))
    assert marked.saves == plain.saves - 400 * 10 * 100
    assert marked.costs == plain.costs + 400 * (1250 - 100)


def test_without_further_calls_no_edit_pays():
    verdict = weigh_edit(PLAIN, edit(steps=0))
    assert (verdict.saves, verdict.costs, verdict.pays) == (0, 0, False)


@given(models, amounts, amounts, st.integers(0, 60))
def test_an_edit_that_removes_nothing_never_pays(model, prefix, suffix, left):
    assert weigh_edit(model, edit(prefix=prefix, removed=0, suffix=suffix, steps=left)).net <= 0


def test_falling_below_the_long_prompt_price_is_worth_the_difference():
    shorter = edit(prefix=150_000, removed=10_000, suffix=45_000, steps=1)
    assert weigh_edit(STEPPED, shorter).saves == 205_000 * 200 - 195_000 * 100
    assert weigh_edit(PLAIN, shorter).saves == 10_000 * 100
    answers = edit(prefix=150_000, removed=10_000, suffix=45_000, steps=1, output=1000)
    assert weigh_edit(STEPPED, answers).saves - weigh_edit(STEPPED, shorter).saves == 1000 * (7000 - 5000)


def test_a_prompt_that_grows_back_over_the_price_step_saves_the_difference_only_until_then():
    still, growing = (edit(prefix=185_000, removed=16_000, suffix=10_000, steps=20, grows=g) for g in (0, 1000))
    assert weigh_edit(STEPPED, growing).saves < weigh_edit(STEPPED, still).saves / 2
    assert weigh_edit(PLAIN, growing).saves == weigh_edit(PLAIN, still).saves


def test_a_prompt_whose_next_message_crosses_the_price_step_saves_no_difference():
    shorter = edit(prefix=189_000, removed=6000, suffix=10_000, steps=1, grows=2000)
    assert weigh_edit(STEPPED, shorter).saves == 6000 * 200


def test_a_prompt_below_the_cache_minimum_has_no_cache_to_break():
    verdict = weigh_edit(card(cache_minimum=4096), edit(prefix=1000, removed=1000, suffix=1000))
    assert (verdict.saves, verdict.costs) == (1000 * 10 * 1000, 0)


def test_a_prompt_that_falls_below_the_cache_minimum_loses_its_discount():
    verdict = weigh_edit(card(cache_minimum=4096), edit(prefix=2000, removed=1000, suffix=2000))
    assert verdict.saves == 10 * (5000 * 100 - 4000 * 1000)
    assert not verdict.pays


def test_a_prefix_below_the_cache_minimum_is_rewritten_with_the_rest():
    verdict = weigh_edit(card(cache_minimum=4096), edit(prefix=1000, removed=1000, suffix=8000))
    assert verdict.costs == 9000 * (1250 - 100)


def test_negative_amounts_are_refused():
    with pytest.raises(ValueError, match="negative"):
        edit(removed=-1)


def test_unknown_prices_are_relative_and_marked_as_unknown():
    assert rates_for(UNPRICED, 10) == RELATIVE_RATES
    assert (RELATIVE_RATES.read / RELATIVE_RATES.fresh, RELATIVE_RATES.write / RELATIVE_RATES.fresh) == (0.1, 1.25)
    assert not weigh_edit(UNPRICED, edit()).known
    assert weigh_edit(PLAIN, edit()).known


def test_a_price_list_without_cache_prices_has_no_cache_discount_or_fee():
    assert rates_for(card(cache_read_price=None, cache_write_price=None), 10) == Rates(
        fresh=1000, read=1000, write=1000, output=5000
    )
    assert rates_for(card(cache_write_price=None), 10).write == 1000
    assert weigh_edit(card(cache_read_price=None, cache_write_price=None), edit()).costs == 0


def test_an_unknown_output_price_is_five_times_the_input_price():
    assert rates_for(card(output_price=None), 10).output == 5 * 1000
    assert RELATIVE_RATES.output == 5 * RELATIVE_RATES.fresh


def test_long_prompt_prices_apply_beyond_the_step_and_missing_ones_rise_with_the_input_price():
    assert rates_for(STEPPED, 200_000) == Rates(fresh=1000, read=100, write=1250, output=5000)
    assert rates_for(STEPPED, 200_001) == Rates(fresh=2000, read=200, write=2500, output=7000)
    bare = card(long_from=200_000, long_input_price=3000)
    assert rates_for(bare, 200_001) == Rates(fresh=3000, read=300, write=3750, output=15_000)
    only_output = card(long_from=200_000, long_output_price=9000)
    assert rates_for(only_output, 200_001) == Rates(fresh=1000, read=100, write=1250, output=9000)


def test_a_free_model_causes_no_division_by_zero():
    free = card(input_price=0, cache_read_price=0, cache_write_price=0, long_from=10, long_input_price=5)
    assert rates_for(free, 11).fresh == 5


def test_a_call_is_charged_for_reading_the_prefix_and_writing_the_rest():
    assert call_price(PLAIN, 10_000, 500, output=20) == 10_000 * 100 + 500 * 1250 + 20 * 5000


def test_the_price_of_a_call_respects_the_cache_minimum():
    model = card(cache_minimum=2048)
    assert call_price(model, 2000, 47, output=3) == 2047 * 1000 + 3 * 5000
    assert call_price(model, 2000, 48) == 2048 * 1250
    assert call_price(model, 2048, 100) == 2048 * 100 + 100 * 1250
    assert call_price(PLAIN, DEFAULT_CACHE_MINIMUM - 1, 0) == (DEFAULT_CACHE_MINIMUM - 1) * 1000


@given(models, amounts, amounts, amounts)
def test_a_longer_stable_prefix_never_costs_more(model, total, first, second):
    assume(max(first, second) <= total)
    short, long = sorted((first, second))
    assert call_price(model, long, total - long) <= call_price(model, short, total - short)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_longer_turns_are_expected_to_last_no_shorter(first, second):
    fewer, more = sorted((first, second))
    assert 5 <= remaining_steps(fewer) <= remaining_steps(more) <= 50


def test_as_many_calls_are_expected_as_were_made():
    assert [remaining_steps(done) for done in (0, 5, 20, 50, 1000)] == [5, 5, 20, 50, 50]


pieces = st.lists(st.tuples(st.binary(max_size=2), st.integers(1, 100)), max_size=12)


@given(pieces, pieces)
def test_a_prompt_that_only_grows_is_entirely_stable(before, added):
    total = sum(tokens for _, tokens in before)
    assert stable_prefix(before, [*before, *added]) == total


@given(pieces, pieces)
def test_the_stable_prefix_is_symmetric(before, after):
    costs = dict.fromkeys((name for name, _ in [*before, *after]), 7)
    first, second = ([(name, costs[name]) for name, _ in prompt] for prompt in (before, after))
    assert stable_prefix(first, second) == stable_prefix(second, first) <= 7 * min(len(first), len(second))
    assert 0 <= cached_share(first, second) <= 1


def test_nothing_after_the_first_change_is_stable():
    before = [(b"system", 100), (b"a", 10), (b"b", 20), (b"c", 30)]
    after = [(b"system", 100), (b"b", 20), (b"c", 30), (b"d", 50)]
    assert stable_prefix(before, after) == 100
    assert cached_share(before, after) == 0.5
    assert cached_share(before, []) == 0.0


def test_pieces_may_be_identified_by_numbers():
    assert stable_prefix([(hash("a"), 3), (2, 4)], [(hash("a"), 3), (5, 4)]) == 3
