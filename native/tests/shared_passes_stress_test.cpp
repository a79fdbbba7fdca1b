// Random scripts for streams, called stories. Each story is run alone, with every request in its own passes, and then
// together with others on several threads. In the second run, all stories share passes, tokens that leave the cache are
// parked, some streams write drafts, and hidden states are read between tokens. In full precision both runs must give
// the same tokens.
//
// ELIZA_STRESS_STORIES=N runs N of them on each model (default 50).

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "engine/model/model.h"
#include "mtp_test_model.h"
#include "test_session.h"

namespace eliza::test {
namespace {

// The tokens of a conversation after each chapter, and the requested scores.
struct Told {
    std::vector<std::vector<int32_t>> chapters;
    std::vector<std::string> names;  // of the chapters
    std::vector<double> scores;
};

// The reference leaves out what must not change a story.
enum class Telling { reference, with_everything };

class Storyteller {
public:
    Storyteller(const ContextHandle & context, std::string model, uint32_t seed, std::mutex & opening, Telling telling)
        : context_(context),
          model_(std::move(model)),
          n_layers_(llama_model_n_layer(Model::load(model_, {})->get())),
          opening_(opening),
          random_(seed),
          telling_(telling) {}

    Told tell() {
        const char * strategies[] = {"auto", "tree", "skip-ahead", "token-by-token"};
        strategy_ = strategies[draw(4)];
        draft_max_ = draw(3) == 0 ? 1 + draw(5) : 0;
        drafts_itself_ = draw(2) == 0;
        open_stream();
        read(prompt());
        const int n_chapters = 3 + draw(4);
        for (int i = 0; i < n_chapters; ++i) {
            switch (draw(10)) {
                case 0:
                case 1: generate(1 + draw(14)); break;
                case 2: choose(ELIZA_TRIE_ARGMAX); break;
                case 3: score(); break;
                case 4: fill(); break;
                case 5: save_and_restore(); break;
                case 6: cancel(); break;
                case 7: go_back(); break;
                case 8: read_hidden_states(); break;
                case 9: decide(); break;
            }
        }
        return told_;
    }

private:
    int draw(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

    std::vector<int32_t> prompt() {
        // Some stories begin with the same prompt, so that slots share cells.
        std::string text = draw(2) == 0 ? "The user asks for an answer to all of the messages of today. " : "";
        const char * words[] = {"send", "note", "mail", "reply", "stop", "remind", "hello", "nine", "list", "today"};
        for (int i = 3 + draw(25); i > 0; --i) text += std::string(words[draw(10)]) + " ";
        return tokenize(context_, text, true);
    }

    void open_stream() {
        stream_.reset();
        eliza_llm_stream_config_t cfg = full_precision_config();
        if (telling_ == Telling::with_everything && draft_max_ > 0) {
            cfg.draft_min = 1;
            cfg.draft_max = draft_max_;
            cfg.mtp_drafter_path = drafts_itself_ ? model_.c_str() : nullptr;  // its drafts are accepted
        }
        // No other thread may change the context's strategy before the stream is open.
        const std::lock_guard<std::mutex> lock(opening_);
        eliza_inference_set_option(context_.get(), "strategy", strategy_, nullptr);
        stream_ = open(context_, cfg);
        ASSERT_NE(stream_, nullptr);
    }

    void chapter(const char * name) {
        told_.chapters.push_back(text_);
        told_.names.push_back(name);
    }

    void read(const std::vector<int32_t> & tokens) {
        prefill(stream_, tokens);
        text_.insert(text_.end(), tokens.begin(), tokens.end());
        chapter("read");
    }

    void take(const Output & output) {
        ASSERT_GE(output.status, 0) << output.error;
        text_.insert(text_.end(), output.tokens.begin(), output.tokens.end());
    }

    void generate(int n) {
        take(push(stream_, n));
        chapter("generate");
        if (stats(stream_).finish_reason != ELIZA_FINISH_NONE) read(tokenize(context_, " and ", false));
    }

    void choose(int mode) {
        set_trie(stream_, payload_of(context_, action_names), mode | ELIZA_TRIE_STOP_AT_LEAF);
        const Output output = pull(stream_, 50);
        take(output);
        EXPECT_NE(leaf(stream_), "");
        eliza_inference_clear_token_trie(stream_.get());
        chapter("choose");
    }

    void score() {
        set_trie(stream_, payload_of(context_, action_names), ELIZA_TRIE_BEST_LEAF);
        std::vector<double> scores(action_names.size());
        EXPECT_GT(eliza_inference_token_trie_scores(stream_.get(), scores.data(), scores.size()), 0)
            << eliza_inference_last_error(stream_.get());
        told_.scores.insert(told_.scores.end(), scores.begin(), scores.end());
        eliza_inference_clear_token_trie(stream_.get());
        chapter("score");
    }

    void fill() {
        const std::string span = draw(2) == 0
                                     ? R"({"before": " I choose ", "choices": ["red", "green", "blue sky"]})"
                                     : R"({"before": " n = ", "json": "integer", "after": ";", "max_tokens": 6})";
        ErrorText error;
        char * out = nullptr;
        EXPECT_EQ(eliza_inference_llm_stream_fill(stream_.get(), span.data(), span.size(), &out, error.out()), 0)
            << error.text();
        // The tokens of the answer are reported as a list, beginning after the last prompt.
        std::string json = out != nullptr ? out : "";
        eliza_inference_free_string(out);
        const size_t begin = json.find("\"answer_tokens\":[") + 17;
        std::vector<int32_t> answer;
        for (size_t at = begin; at < json.size() && json[at] != ']';) {
            size_t used = 0;
            answer.push_back(std::stoi(json.substr(at, 12), &used));
            at += used + (json[at + used] == ',' ? 1 : 0);
        }
        const auto n_past = static_cast<size_t>(stats(stream_).n_past);
        text_.resize(n_past - answer.size());
        text_.insert(text_.end(), answer.begin(), answer.end());
        chapter("fill");
        read(tokenize(context_, " then ", false));  // the text after this is no longer part of the answer
    }

    void save_and_restore() {
        const std::string path =
            (std::filesystem::temp_directory_path() /
             ("eliza-stress-" + std::to_string(getpid()) + "-" + std::to_string(reinterpret_cast<uintptr_t>(this))))
                .string();
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_save_slot(stream_.get(), path.c_str(), error.out()), 0) << error.text();
        open_stream();
        EXPECT_EQ(eliza_inference_llm_stream_restore_slot(stream_.get(), path.c_str(), error.out()), 0) << error.text();
        std::filesystem::remove(path);
        EXPECT_EQ(static_cast<size_t>(stats(stream_).n_past), text_.size());
        chapter("save");
    }

    // Cancels a prefill from another thread: before, during or after the call. Then removes the prompt again.
    void cancel() {
        const int wait_us = draw(2000);
        const std::vector<int32_t> tokens(150, 60 + draw(50));
        std::thread canceller([&] {
            std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
            eliza_inference_llm_stream_cancel(stream_.get());
        });
        const int status = eliza_inference_llm_stream_prefill(stream_.get(), tokens.data(), tokens.size(), nullptr);
        canceller.join();
        EXPECT_TRUE(status == 0 || status == ELIZA_ERR_CANCELLED);
        EXPECT_EQ(eliza_inference_llm_stream_reset_keep(stream_.get(), static_cast<int32_t>(text_.size())),
                  static_cast<int32_t>(text_.size()));
        chapter("cancel");
    }

    // Generates a few tokens, so that a draft may be pending, and reads the hidden states of other tokens after them.
    void read_hidden_states() {
        generate(1 + draw(3));
        std::vector<int32_t> tokens = tokenize(context_, " and something else entirely comes next", false);
        tokens[static_cast<size_t>(draw(4))] += draw(3);
        const std::vector<int32_t> layers = {draw(2) == 0 ? 1 : n_layers_};  // the last one runs the whole pass
        const auto n_kept = static_cast<uint64_t>(draw(9));
        if (telling_ == Telling::with_everything) {
            std::vector<int32_t> all = text_;
            all.insert(all.end(), tokens.begin(), tokens.end());
            Decide made{all, layers, {all.size() - 1, all.size()}};
            made.states.resize(4096);
            made.n_kept = n_kept;
            const int status = made.call(context_);
            // llama.cpp does not name all layers of all models.
            EXPECT_TRUE(status == 0 || (status == ELIZA_ERR_NOT_IMPLEMENTED && layers[0] != n_layers_))
                << made.error.text();
        }
        generate(4 + draw(6));
    }

    // Scores the labels after two endings, and reads means of hidden states: in the same passes, or alone.
    void decide() {
        const ChoicesHandle labels = prepare(context_, {{61, 62}, {61, 63}, {64}});
        const std::vector<int32_t> tokens = {70 + draw(9), 71};
        const std::vector<eliza_ending_t> endings = {{nullptr, 0, labels.get()}, {tokens.data(), 2, labels.get()}};
        const uint64_t n = text_.size(), begin = static_cast<uint64_t>(draw(static_cast<int>(n)));
        const std::vector<uint64_t> ranges = {begin, n, n - 1, n};
        std::vector<int32_t> layers = {n_layers_};
        if (model_ == f32_model_path()) layers.insert(layers.begin(), 1);  // other models do not name all layers
        const auto n_embd = static_cast<size_t>(llama_model_n_embd(Model::load(model_, {})->get()));
        Decide made{text_, layers, ranges};
        made.states.resize(layers.size() * 2 * n_embd);
        std::vector<double> scores(6);
        if (telling_ == Telling::with_everything) {
            made.endings = endings;
            made.legal.resize(scores.size());
        }
        EXPECT_EQ(made.call(context_), static_cast<int32_t>(made.legal.size())) << made.error.text();
        ErrorText error;
        if (telling_ != Telling::with_everything) {
            EXPECT_EQ(eliza_inference_llm_stream_score_endings(stream_.get(), endings.data(), 2, scores.data(), nullptr,
                                                               nullptr, scores.size(), error.out()),
                      6)
                << error.text();
        }
        const std::vector<double> & found = made.legal.empty() ? scores : made.legal;
        told_.scores.insert(told_.scores.end(), found.begin(), found.end());
        told_.scores.insert(told_.scores.end(), made.states.begin(), made.states.end());
        chapter("decide");
    }

    void go_back() {
        text_.resize(std::max<size_t>(1, text_.size() - static_cast<size_t>(draw(6))));
        eliza_inference_llm_stream_reset_keep(stream_.get(), static_cast<int32_t>(text_.size()));
        read(tokenize(context_, " again ", false));
    }

    const ContextHandle & context_;
    const std::string model_;
    const int32_t n_layers_;
    std::mutex & opening_;
    std::mt19937 random_;
    const Telling telling_;
    const char * strategy_ = "auto";
    int draft_max_ = 0;
    bool drafts_itself_ = false;
    StreamHandle stream_{nullptr, eliza_inference_llm_stream_close};
    std::vector<int32_t> text_;
    Told told_;
};

struct StressModel {
    const char * name;
    const char * arch;  // of a test model; nullptr: the project's own
};

class SharedPassesStress : public testing::TestWithParam<StressModel> {
protected:
    static std::string model_path() {
        const char * arch = GetParam().arch;
        return arch != nullptr ? mtp_model_path({arch, MtpHead::random}) : f32_model_path();
    }

    static ContextHandle context(const char * batching, const char * parking) {
        return create(
            {{"n_ctx", "8192"}, {"n_slots", "8"}, {"n_threads", "1"}, {"batching", batching}, {"parking", parking}},
            model_path());
    }

    // Returns true if both tokens were about equally probable after the text, so that rounding may decide.
    static bool is_near_tie(const ContextHandle & alone, const std::vector<int32_t> & text, size_t n, int32_t a,
                            int32_t b) {
        float p_a = 0, p_b = 0;
        eliza_inference_llm_eot_score(alone.get(), text.data(), n, a, &p_a, nullptr, nullptr, nullptr);
        eliza_inference_llm_eot_score(alone.get(), text.data(), n, b, &p_b, nullptr, nullptr, nullptr);
        return std::abs(std::log(p_a) - std::log(p_b)) < 1e-3f;
    }
};

TEST_P(SharedPassesStress, EveryStoryEndsAsItDoesAlone) {
    const char * asked = std::getenv("ELIZA_STRESS_STORIES");
    const int n_stories = asked != nullptr ? std::atoi(asked) : 50;
    constexpr int n_threads = 6;
    const ContextHandle alone = context("off", "off"), together = context("auto", "on");
    std::mutex opening;
    std::vector<Told> expected, got(static_cast<size_t>(n_stories));
    for (int i = 0; i < n_stories; ++i) {
        const auto seed = static_cast<uint32_t>(i);
        expected.push_back(Storyteller(alone, model_path(), seed, opening, Telling::reference).tell());
    }
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; ++t) {
        threads.emplace_back([&] {
            for (int i = next++; i < n_stories; i = next++) {
                Storyteller teller(together, model_path(), static_cast<uint32_t>(i), opening, Telling::with_everything);
                got[static_cast<size_t>(i)] = teller.tell();
            }
        });
    }
    for (std::thread & thread : threads) thread.join();

    int n_near_ties = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const Told &a = expected[i], &b = got[i];
        ASSERT_EQ(a.chapters.empty(), b.chapters.empty());
        bool is_same = true;
        for (size_t chapter = 0; is_same && chapter < std::min(a.chapters.size(), b.chapters.size()); ++chapter) {
            const std::vector<int32_t> &one = a.chapters[chapter], &other = b.chapters[chapter];
            if (one == other) continue;
            is_same = false;
            const auto differs = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
            const bool in_both = differs.first != one.end() && differs.second != other.end();
            const auto n = static_cast<size_t>(differs.first - one.begin());
            if (in_both && n > 0 && is_near_tie(alone, one, n, *differs.first, *differs.second)) {
                ++n_near_ties;
            } else {
                ADD_FAILURE() << "story " << i << ", chapter " << chapter << " (" << a.names[chapter] << "), token "
                              << n << " of " << one.size() << " and " << other.size();
            }
        }
        if (!is_same) continue;
        EXPECT_EQ(a.chapters.size(), b.chapters.size()) << "story " << i;
        ASSERT_EQ(a.scores.size(), b.scores.size()) << "story " << i;
        for (size_t k = 0; k < a.scores.size(); ++k) {
            EXPECT_NEAR(a.scores[k], b.scores[k], 2e-3) << "story " << i;
        }
    }
    std::printf("%s: %d stories, %d near-ties\n", GetParam().name, n_stories, n_near_ties);
    EXPECT_LE(n_near_ties, 1 + n_stories / 50);
}

INSTANTIATE_TEST_SUITE_P(Models, SharedPassesStress,
                         testing::Values(StressModel{"attention", nullptr}, StressModel{"experts", "glm4moe"},
                                         StressModel{"recurrent", "qwen35"}, StressModel{"sliding_window", "step35"}),
                         [](const auto & model) { return std::string(model.param.name); });

}  // namespace
}  // namespace eliza::test
