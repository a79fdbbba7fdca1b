// Streams that together need more cells than the KV cache has. None of them loses a token: streams that were opened
// last wait until there is room. Only a stream that is too long for the whole cache ends early.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "engine_parts.h"
#include "mtp_test_model.h"

namespace eliza::test {
namespace {

constexpr int32_t small_cache = 256;

struct Story {
    std::vector<llama_token> prompt;
    size_t limit = 0;  // tokens to generate

    // A token can be chosen after a full cache, but no further one.
    size_t n_possible() const { return std::min(limit, small_cache - prompt.size() + 1); }
    bool is_cut() const { return n_possible() < limit; }
};

struct Written {
    std::vector<llama_token> tokens;
    std::vector<float> margins;  // between the two most probable tokens
    bool is_cut = false;
};

// Generates greedily.
class Writer {
public:
    Writer(const std::shared_ptr<Decoder> & decoder, const Story & story)
        : n_vocab_(decoder->model().n_vocab()), story_(story), sequence_(decoder, {}, cancelled_) {
        sequence_.append(story.prompt.data(), story.prompt.size());
    }

    bool is_over() const { return written_.is_cut || written_.tokens.size() == story_.limit; }
    void step() {
        try {
            const float * logits = sequence_.logits();
            const llama_token token = argmax(logits, n_vocab_);
            float second = -INFINITY;
            for (llama_token other = 0; other < n_vocab_; ++other) {
                if (other != token) second = std::max(second, logits[other]);
            }
            written_.tokens.push_back(token);
            written_.margins.push_back(logits[token] - second);
            sequence_.append(token);
        } catch (const ContextFull &) {
            written_.is_cut = true;
        }
    }
    const Written & write() {
        while (!is_over()) step();
        return written_;
    }
    const Written & written() const { return written_; }

private:
    const int32_t n_vocab_;
    const Story & story_;
    CancelFlag cancelled_;
    Sequence sequence_;
    Written written_;
};

class FullCache : public EngineParts, public testing::WithParamInterface<bool> {
protected:
    std::shared_ptr<Decoder> small_decoder() { return small_decoder(model); }
    std::shared_ptr<Decoder> small_decoder(const std::shared_ptr<Model> & of) const {
        Options small = options;
        small.n_ctx = small_cache;
        small.n_slots = 6;
        small.share_passes = GetParam();
        return std::make_shared<Decoder>(of, std::make_shared<ComputeThreads>(1), small,
                                         DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}});
    }

    Story random_story(std::mt19937 & random) const {
        Story story;
        const std::vector<llama_token> common = model->tokenize_inside("The quick brown fox jumps over the lazy dog.");
        if (random() % 2 == 0) story.prompt = common;
        for (size_t n = 1 + random() % 120; n > 0; --n) {
            story.prompt.push_back(200 + static_cast<llama_token>(random() % 1000));
        }
        story.limit = 1 + random() % 140;
        return story;
    }

    // In another order of additions, two nearly equal logits may change places; the texts then differ from there on.
    void expect_same(const Written & got, const Story & story) {
        EXPECT_EQ(got.tokens.size(), story.n_possible());
        EXPECT_EQ(got.is_cut, story.is_cut());
        const Written alone = Writer(decoder, story).write();
        for (size_t i = 0; i < got.tokens.size(); ++i) {
            if (got.tokens[i] != alone.tokens[i]) {
                EXPECT_LT(alone.margins[i], 1e-3f) << "token " << i;
                return;
            }
        }
    }
};

TEST_P(FullCache, EveryStreamGetsWhatItGetsAlone) {
    std::mt19937 random(5);
    for (int round = 0; round < 8; ++round) {
        const std::shared_ptr<Decoder> small = small_decoder();
        std::vector<Story> stories;
        for (size_t n = 2 + random() % 5; n > 0; --n) stories.push_back(random_story(random));
        std::vector<Written> written(stories.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < stories.size(); ++i) {
            threads.emplace_back([&, i] { written[i] = Writer(small, stories[i]).write(); });
        }
        for (std::thread & thread : threads) thread.join();
        for (size_t i = 0; i < stories.size(); ++i) {
            SCOPED_TRACE("story " + std::to_string(i) + " of round " + std::to_string(round));
            expect_same(written[i], stories[i]);
        }
    }
}

// The other streams cannot end while one waits, because a single thread serves all of them.
TEST_P(FullCache, StreamsInTurnsOfOneThreadGoOn) {
    const std::shared_ptr<Decoder> small = small_decoder();
    std::mt19937 random(6);
    std::vector<Story> stories(3);
    for (Story & story : stories) {
        story = random_story(random);
        story.prompt.resize(90, 300);
        story.limit = 6;
    }
    std::vector<std::unique_ptr<Writer>> writers;
    for (const Story & story : stories) writers.push_back(std::make_unique<Writer>(small, story));
    for (size_t i = 0; i < 6; ++i) {
        for (const auto & writer : writers) writer->step();
    }
    for (size_t i = 0; i < stories.size(); ++i) expect_same(writers[i]->written(), stories[i]);
}

TEST_P(FullCache, TokensThatAreFoundAgainCountOnce) {
    const std::shared_ptr<Decoder> small = small_decoder();
    const std::vector<llama_token> common(100, 40), other(150, 50);
    std::vector<llama_token> longer = common;
    longer.resize(120, 60);
    Sequence first(small, {}, cancelled), second(small, {}, cancelled), third(small, {}, cancelled);
    first.append(common.data(), common.size());
    first.logits();
    second.append(other.data(), other.size());
    second.logits();
    third.append_prompt(longer.data(),
                        longer.size());  // do not fit: the stream loses the common tokens, and finds them again
    third.logits();
    EXPECT_EQ(third.counts().prompt_tokens_reused, 100);
}

// The cells of a common beginning are not shared if a stream was restored, or by a recurrent model.
TEST_P(FullCache, AnotherStreamCanHoldTheBeginningInCellsOfItsOwn) {
    const std::shared_ptr<Model> recurrent = Model::load(mtp_model_path({"qwen35", MtpHead::random}), {});
    for (const size_t n_held : {95, 100}) {  // the beginning, and more
        std::vector<llama_token> held(95, 40), longer(180, 50);
        std::copy(held.begin(), held.end(), longer.begin());
        held.resize(n_held, 60);
        for (const std::shared_ptr<Model> & of : {model, recurrent}) {
            const std::shared_ptr<Decoder> small = small_decoder(of);
            Sequence first(small, {}, cancelled), second(small, {}, cancelled), third(small, {}, cancelled);
            first.append(held.data(), held.size());
            second.restore_state(held, first.copy_state());
            third.append(longer.data(), longer.size());
            third.logits();
            EXPECT_EQ(third.counts().forward_passes, 1);
        }
    }
}

TEST_P(FullCache, AWaitingStreamCanBeCancelled) {
    const std::shared_ptr<Decoder> small = small_decoder();
    Sequence first(small, {}, cancelled);
    const std::vector<llama_token> text(200, 40);
    first.append(text.data(), text.size());
    first.logits();
    CancelFlag stop;
    Sequence second(small, {}, stop);
    const std::vector<llama_token> other(120, 50);
    second.append(other.data(), other.size());
    std::atomic<bool> is_over{false};
    std::thread keeps_busy([&] {  // so that the cells of the first stream are not taken
        while (!is_over) {
            first.append(41);
            first.logits();
            first.truncate(200);
        }
    });
    std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        stop.set();
        small->queue().wake_cancelled();
    });
    EXPECT_THROW(second.logits(), Error);
    is_over = true;
    canceller.join();
    keeps_busy.join();
    second.logits();  // takes the room of the first one, which is idle now
}

INSTANTIATE_TEST_SUITE_P(, FullCache, testing::Values(true, false),
                         [](const auto & test) { return test.param ? "SharedPasses" : "OwnPasses"; });

}  // namespace
}  // namespace eliza::test
