// What slots share and give back.

#include "engine/cache/kv_cache.h"

#include "engine_parts.h"

namespace eliza::test {
namespace {

class KvCacheTest : public EngineParts {
protected:
    KvCache & cache = decoder->cache();
    const std::vector<llama_token> text = tokens_of("The quick brown fox jumps over the lazy dog again");

    void decode_text() {
        sequence.append(text.data(), text.size());
        sequence.logits();
    }
    Slot & free_slot() {
        for (Slot & slot : cache.slots().all()) {
            if (slot.cached.empty()) return slot;
        }
        throw std::logic_error("no slot is empty");
    }
};

TEST_F(KvCacheTest, ASlotFindsTheBeginningThatAnotherHolds) {
    decode_text();
    Slot & other = free_slot();
    EXPECT_EQ(cache.match(other, text.data(), text.size() - 1), text.size() - 1);
    EXPECT_EQ(other.cached, std::vector<llama_token>(text.begin(), text.end() - 1));
    const std::vector<llama_token> different(text.size(), text[1]);
    EXPECT_EQ(cache.match(other, different.data(), different.size()), 0u);
}

TEST_F(KvCacheTest, RoomIsMadeOfWhatNobodyWants) {
    decode_text();
    EXPECT_FALSE(cache.make_room());  // the sequence wants all it has
    sequence.truncate(3);
    EXPECT_TRUE(cache.make_room());
    EXPECT_FALSE(cache.make_room());
}

TEST_F(KvCacheTest, LanesComeBackWhateverBecomesOfTheFork) {
    decode_text();
    const int32_t n_free = cache.n_free_lanes();
    ASSERT_GE(n_free, 8);
    Slot & slot = free_slot();
    {
        const KvCache::Fork one(cache, slot, 3);
        EXPECT_EQ(cache.n_free_lanes(), n_free - 3);
        const KvCache::Fork other(cache, slot, 5);
        for (const llama_seq_id lane : one.lanes()) {
            EXPECT_EQ(std::count(other.lanes().begin(), other.lanes().end(), lane), 0);
        }
    }
    EXPECT_EQ(cache.n_free_lanes(), n_free);
}

TEST_F(KvCacheTest, AStateComesBackAsItWas) {
    decode_text();
    const std::vector<uint8_t> state = sequence.copy_state();
    Sequence other(decoder, {}, cancelled);
    other.restore_state(text, state);
    other.append(7);
    sequence.append(7);
    const std::vector<float> expected(sequence.logits(), sequence.logits() + model->n_vocab());
    const float * got = other.logits();
    EXPECT_EQ(other.counts().tokens_reused, 0);
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4) << i;
}

TEST_F(KvCacheTest, AStateOfAnotherLengthIsRefused) {
    decode_text();
    const std::vector<uint8_t> state = sequence.copy_state();
    Sequence other(decoder, {}, cancelled);
    EXPECT_THROW(other.restore_state({1, 2, 3}, state), Error);
    EXPECT_TRUE(other.tokens().empty());
}

}  // namespace
}  // namespace eliza::test
