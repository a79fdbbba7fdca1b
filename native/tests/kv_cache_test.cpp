// Sharing and freeing of slots, and texts without a slot.

#include "engine/cache/kv_cache.h"

#include "engine_parts.h"

namespace eliza::test {
namespace {

class KvCacheTest : public EngineParts {
protected:
    KvCache & cache = decoder->cache();
    const std::vector<llama_token> text = tokens_of("The quick brown fox jumps over the lazy dog again");

    void decode_text() {
        sequence.append_prompt(text.data(), text.size());
        sequence.logits();
    }
    Slot & free_slot() {
        for (Slot & slot : cache.slots().all()) {
            if (slot.cached.empty()) return slot;
        }
        throw std::logic_error("no slot is empty");
    }
};

TEST_F(KvCacheTest, ASlotReusesAPrefixOfAnother) {
    decode_text();
    Slot & other = free_slot();
    EXPECT_EQ(cache.take_prefix(other, text.data(), text.size() - 1), text.size() - 1);
    EXPECT_EQ(other.cached, std::vector<llama_token>(text.begin(), text.end() - 1));
    const std::vector<llama_token> different(text.size(), text[1]);
    EXPECT_EQ(cache.take_prefix(other, different.data(), different.size()), 0u);
}

TEST_F(KvCacheTest, RoomIsMadeByRemovingUnneededTokens) {
    decode_text();
    EXPECT_FALSE(cache.make_room());  // the sequence needs all of its tokens
    sequence.truncate(3);
    EXPECT_TRUE(cache.make_room());
    EXPECT_FALSE(cache.make_room());
}

TEST_F(KvCacheTest, TextsWithTheSameBeginningShareTheCellsThatTheyNeed) {
    decode_text();
    Slot & other = free_slot();
    const std::vector<llama_token> fork = {text[0], text[1], 7, 8};
    EXPECT_EQ(cache.n_needed_cells(other, fork.data(), fork.size()), text.size() + 2);
    EXPECT_EQ(cache.n_needed_cells(other, text.data(), text.size()), text.size());
    EXPECT_EQ(cache.n_needed_cells(sequence.slot(), fork.data(), fork.size()), fork.size());
}

TEST_F(KvCacheTest, LanesAreFreedAfterTheFork) {
    decode_text();
    const int32_t n_free = cache.n_free_lanes();
    ASSERT_GE(n_free, 8);
    Slot & slot = free_slot();
    {
        const KvCache::Fork one(cache, &slot, 3);
        EXPECT_EQ(cache.n_free_lanes(), n_free - 3);
        const KvCache::Fork other(cache, &slot, 5);
        for (const llama_seq_id lane : one.lanes()) {
            EXPECT_EQ(std::count(other.lanes().begin(), other.lanes().end(), lane), 0);
        }
    }
    EXPECT_EQ(cache.n_free_lanes(), n_free);
}

// Slots are filled from the last one on, so the first slot is empty and needs no check.
TEST_F(KvCacheTest, ALaneCostsMoreAfterALongerText) {
    EXPECT_EQ(cache.lane_us(900), 0.0);  // no lane was made yet
    const std::vector<llama_token> long_text(900, 40);
    sequence.append(long_text.data(), long_text.size());
    sequence.logits();
    { const KvCache::Fork fork(cache, &sequence.slot(), 8); }
    EXPECT_GT(cache.lane_us(900), cache.lane_us(1));
    EXPECT_GT(cache.lane_us(1), 0.0);
}

TEST(PassTimes, AreALineThroughSmallAndLargePasses) {
    const std::shared_ptr<Model> model = Model::load(f32_model_path(), {});
    PassTimes times(*model);
    const PassCost assumed = times.cost(/*stops_before_head=*/true);
    EXPECT_GT(assumed.pass, assumed.token);
    EXPECT_GT(assumed.token, 0.0);
    times.add(100, 0, 1500);
    const PassCost guessed = times.cost(true);
    EXPECT_NEAR(guessed.of(100, 0, 0), 1500, 1);
    EXPECT_NEAR(guessed.token / guessed.pass, assumed.token / assumed.pass, 1e-6);
    for (int i = 0; i < 50; ++i) {
        times.add(1, 0, 1010);
        times.add(50, 0, 1500);
    }
    const PassCost learned = times.cost(true);
    EXPECT_NEAR(learned.token, 10, 0.5);
    EXPECT_NEAR(learned.pass, 1000, 5);
    EXPECT_EQ(learned.row, 0.0);
    EXPECT_GT(times.cost(/*stops_before_head=*/false).row, 0.0);
}

TEST_F(KvCacheTest, AStateIsRestoredUnchanged) {
    decode_text();
    const std::vector<uint8_t> state = sequence.copy_state();
    Sequence other(decoder, {}, cancelled);
    other.restore_state(text, state);
    other.append(7);
    sequence.append(7);
    const std::vector<float> expected(sequence.logits(), sequence.logits() + model->n_vocab());
    const float * got = other.logits();
    EXPECT_EQ(other.counts().prompt_tokens_reused, 0);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}

TEST_F(KvCacheTest, AStateOfAnotherLengthIsRejected) {
    decode_text();
    const std::vector<uint8_t> state = sequence.copy_state();
    Sequence other(decoder, {}, cancelled);
    EXPECT_THROW(other.restore_state({1, 2, 3}, state), Error);
    EXPECT_TRUE(other.tokens().empty());
}

class OtherTextsTest : public EngineParts {
protected:
    KvCache & cache = decoder->cache();

    std::vector<float> logits_after(Sequence & any, const std::vector<llama_token> & tokens) {
        any.append_prompt(tokens.data(), tokens.size());
        const float * logits = any.logits();
        return {logits, logits + model->n_vocab()};
    }
    std::vector<llama_token> distinct_text(llama_token seed, size_t n) const {
        std::vector<llama_token> tokens;
        for (size_t i = 0; i < n; ++i)
            tokens.push_back(200 + (seed * 97 + static_cast<llama_token>(i) * 31) % (model->n_vocab() - 200));
        return tokens;
    }
};

class KeptTextsTest : public OtherTextsTest {
protected:
    // Returns how many tokens of the text the sequence found in the cache.
    int64_t n_reused_by(const std::vector<llama_token> & tokens) {
        const int64_t before = sequence.counts().prompt_tokens_reused;
        sequence.truncate(0);
        logits_after(sequence, tokens);
        return sequence.counts().prompt_tokens_reused - before;
    }
    std::vector<llama_token> row_of(llama_token seed_of_template, llama_token seed) const {
        std::vector<llama_token> tokens = distinct_text(seed_of_template, 100);
        const std::vector<llama_token> own = distinct_text(1000 + seed, 40);
        tokens.insert(tokens.end(), own.begin(), own.end());
        return tokens;
    }
};

TEST_F(KeptTextsTest, AreMoreThanTheSlots) {
    for (llama_token seed = 0; seed < 9; ++seed) EXPECT_EQ(n_reused_by(distinct_text(seed, 50)), 0) << seed;
    for (llama_token seed = 0; seed < 9; ++seed) EXPECT_EQ(n_reused_by(distinct_text(seed, 50)), 49) << seed;
}

TEST_F(KeptTextsTest, GiveTheLogitsOfAFreshText) {
    const std::vector<float> expected = logits_after(sequence, row_of(1, 1));
    for (llama_token seed = 2; seed < 5; ++seed) n_reused_by(row_of(seed, seed));
    EXPECT_EQ(n_reused_by(row_of(1, 2)), 100);
    EXPECT_EQ(n_reused_by(row_of(1, 1)), 139);
    const float * got = sequence.logits();
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}

// 5 beginnings of 100 tokens and 500 ends of 40 do not fit into 1,024 cells.
TEST_F(KeptTextsTest, LoseTheirOwnEndsBeforeWhatTheyShare) {
    for (llama_token row = 0; row < 100; ++row) {
        for (llama_token seed = 0; seed < 5; ++seed) {
            const int64_t n_reused = n_reused_by(row_of(seed, 5 * row + seed));
            if (row > 1) {
                ASSERT_EQ(n_reused, 100) << row << ", " << seed;
            }
        }
    }
    EXPECT_EQ(cache.n_parked(), 0u);
}

TEST_F(KeptTextsTest, AreNotMadeOfTheFewTokensThatAStreamTakesBack) {
    logits_after(sequence, distinct_text(1, 100));
    sequence.truncate(90);
    sequence.append(7);
    sequence.logits();
    for (const Slot & slot : cache.slots().all()) EXPECT_EQ(slot.cached.empty(), &slot != &sequence.slot());
}

class ParkedTextsTest : public OtherTextsTest {
protected:
    const std::vector<llama_token> text = tokens_of("The quick brown fox jumps over the lazy dog again");

    // Opens a stream, lets it decode the tokens, and closes it.
    std::vector<float> decode_and_close(const std::vector<llama_token> & tokens) {
        Sequence closed(decoder, {}, cancelled);
        return logits_after(closed, tokens);
    }
    void park_all() {
        while (cache.make_room()) {
        }
    }
};

TEST_F(ParkedTextsTest, LeaveTheirCells) {
    decode_and_close(text);
    EXPECT_EQ(cache.n_parked(), 0u);
    park_all();
    EXPECT_EQ(cache.n_parked(), text.size());
    for (const Slot & slot : cache.slots().all()) {
        EXPECT_TRUE(slot.cached.empty());
        EXPECT_EQ(llama_memory_seq_pos_max(llama_get_memory(decoder->context()), slot.id), -1);
    }
}

TEST_F(ParkedTextsTest, AreRestoredForAPromptThatBeginsTheSame) {
    std::vector<llama_token> longer = text;
    longer.push_back(tokens_of(" and").back());
    const std::vector<float> expected = decode_and_close(longer);
    decode_and_close(text);  // in another slot
    park_all();
    ASSERT_EQ(cache.n_parked(), text.size() + longer.size());

    Sequence again(decoder, {}, cancelled);
    const std::vector<float> got = logits_after(again, longer);
    EXPECT_EQ(again.counts().prompt_tokens_reused, static_cast<int64_t>(text.size()));
    EXPECT_EQ(again.counts().forward_passes, 1);
    EXPECT_EQ(cache.n_parked(), longer.size());  // the shorter one was restored completely
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}

TEST_F(ParkedTextsTest, StayParkedIfOnlyTheirBeginningIsUsed) {
    decode_and_close(text);
    park_all();
    std::vector<llama_token> other(text.begin(), text.end() - 3);
    other.push_back(7);
    const std::vector<float> expected = [&] {
        const auto fresh = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads),
                                                     options, DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}});
        Sequence alone(fresh, {}, cancelled);
        return logits_after(alone, other);
    }();
    Sequence again(decoder, {}, cancelled);
    const std::vector<float> got = logits_after(again, other);
    EXPECT_EQ(again.counts().prompt_tokens_reused, static_cast<int64_t>(text.size()) - 3);
    EXPECT_EQ(cache.n_parked(), text.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}

TEST_F(ParkedTextsTest, AreNotRestoredIfDecodingIsCheaper) {
    const std::vector<llama_token> parked = distinct_text(1, 300);
    decode_and_close(parked);
    park_all();
    Sequence again(decoder, {}, cancelled);
    logits_after(again, {parked[0], parked[1], 7});
    EXPECT_EQ(again.counts().prompt_tokens_reused, 0);
    EXPECT_EQ(cache.n_parked(), parked.size());
}

TEST_F(ParkedTextsTest, AreAtMostAsManyAsTheCells) {
    const auto n_ctx = static_cast<size_t>(decoder->n_ctx());
    for (llama_token seed = 0; seed < 3; ++seed) {
        decode_and_close(distinct_text(seed, n_ctx * 2 / 5));
        park_all();
    }
    EXPECT_EQ(cache.n_parked(), 2 * (n_ctx * 2 / 5));
    Sequence again(decoder, {}, cancelled);
    logits_after(again, distinct_text(0, 100));
    EXPECT_EQ(again.counts().prompt_tokens_reused, 0);  // the oldest was dropped
}

TEST_F(ParkedTextsTest, MakeRoomIfTheCellsAreFull) {
    const auto n_ctx = static_cast<size_t>(decoder->n_ctx());
    const std::vector<llama_token> first = distinct_text(0, n_ctx * 2 / 3);
    decode_and_close(first);
    Sequence second(decoder, {}, cancelled);
    logits_after(second, distinct_text(1, n_ctx / 2));
    EXPECT_EQ(cache.n_parked(), first.size());
}

TEST_F(ParkedTextsTest, DoNotExistIfTheOptionIsOff) {
    options.parks = false;
    const auto never = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads), options,
                                                 DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}});
    {
        Sequence closed(never, {}, cancelled);
        logits_after(closed, text);
    }
    EXPECT_TRUE(never->cache().make_room());
    EXPECT_EQ(never->cache().n_parked(), 0u);
    for (const Slot & slot : never->cache().slots().all()) EXPECT_TRUE(slot.cached.empty());
}

}  // namespace
}  // namespace eliza::test
