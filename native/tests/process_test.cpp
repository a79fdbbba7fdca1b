// Forked processes, throwing callbacks, and the log.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/threads.h"
#include "log.h"
#include "posix.h"
#include "test_session.h"
#include "token_trie/trie_cache.h"

static bool is_forked_child = false;

// LeakSanitizer calls this at exit. A forked child intentionally leaks its parent's objects.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace eliza::test {
namespace {

// Returns the exit status of a child, or -1 if a signal ended it, which also happens to a child that hangs.
int status_of_child(const std::function<void()> & body) {
    const pid_t child = fork();
    if (child == 0) {
        is_forked_child = true;
        alarm(30);
        body();
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void decide(const ContextHandle & context) {
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6, 7});
    if (pull(stream, 2).tokens.size() != 2) std::_Exit(7);
}

class ForkedProcess : public testing::Test {
protected:
    // With two threads; the second one does not exist in a child.
    ContextHandle context = create({{"n_threads", "2"}});
    StreamHandle stream = open(context);

    void SetUp() override {
        SKIP_ON_WINDOWS("Windows has no fork()");
        prefill(stream, {5, 6, 7});
    }
};

TEST_F(ForkedProcess, EndsNormally) {
    EXPECT_EQ(status_of_child([] {}), 0);
    decide(context);
}

TEST_F(ForkedProcess, EndsNormallyAfterUsingItsOwnModel) {
    EXPECT_EQ(status_of_child([] { decide(create({{"n_threads", "2"}})); }), 0);
    EXPECT_EQ(status_of_child([] {
                  static const ContextHandle kept = create({{"n_threads", "2"}});  // open until the process ends
                  decide(kept);
              }),
              0);
}

TEST_F(ForkedProcess, WorksAfterAForkDuringCallsOfTheLibrary) {
    std::atomic<bool> is_over{false};
    const auto repeat = [&](const std::function<void()> & use) {
        return std::thread([&is_over, use] {
            while (!is_over) use();
        });
    };
    std::vector<std::thread> threads;
    threads.push_back(repeat([] { eliza_inference_llm_stream_cancel(nullptr); }));
    threads.push_back(repeat([this] { eliza_inference_llm_stream_cancel(stream.get()); }));
    threads.push_back(repeat([] { create({{"n_threads", "1"}}); }));
    threads.push_back(repeat([] { TrieCache::shared().get(payload({{"a", {1, 2}}}), 100); }));
    threads.push_back(repeat([] { BusyMachineGuard::of_process().limit(2, 0); }));
    bool all_end = true;
    for (int i = 0; i < 200 && all_end; ++i) {
        all_end = status_of_child([&] {
                      eliza_inference_llm_stream_cancel(stream.get());
                      TrieCache::shared().get(payload({{"a", {1, 2}}}), 100);
                      BusyMachineGuard::of_process().limit(2, 0);
                      if (i % 40 == 0) decide(create({{"n_threads", "1"}}));
                      std::_Exit(0);
                  }) == 0;
    }
    EXPECT_TRUE(all_end);
    is_over = true;
    for (std::thread & thread : threads) thread.join();
}

// Calls of all kinds, which may fail, because the process is ending.
void call_while_ending(EliInferenceContext * context, int kind) {
    ErrorText error;
    const std::vector<int32_t> prompt(200, 5);
    const eliza_llm_stream_config_t cfg = config();
    const auto with_stream = [&](const std::function<void(EliLlmStream *)> & use) {
        const StreamHandle stream(eliza_inference_llm_stream_open(context, &cfg, error.out()),
                                  eliza_inference_llm_stream_close);
        if (stream == nullptr) return;
        eliza_inference_llm_stream_prefill(stream.get(), prompt.data(), prompt.size(), error.out());
        use(stream.get());
    };
    const std::string text = "Größe 12 of 日本 – and a few ordinary words. ";
    const char * const labels[] = {"yes", "no"};
    int * tokens = nullptr;
    size_t n = 0;
    float values[4096];
    int32_t top = 0, size = 0;
    eliza_choice_t choice{};
    switch (kind) {
        case 0:
            return with_stream([&](EliLlmStream * stream) { pull(StreamHandle(stream, [](EliLlmStream *) {}), 3); });
        case 1: {  // loads a model of its own, and frees it
            EliInferenceContext * other = eliza_inference_create(model_path().c_str(), error.out());
            eliza_inference_set_option(other, "use_mmap", "0", error.out());
            eliza_inference_mmap_acquire(other, "text", error.out());
            return eliza_inference_destroy(other);
        }
        case 2:
            eliza_inference_tokenize(context, text.data(), text.size(), 1, 1, &tokens, &n, error.out());
            eliza_inference_detokenize(context, tokens, n, 0, 1, reinterpret_cast<char *>(values), sizeof values,
                                       error.out());
            return eliza_inference_free_tokens(tokens);
        case 3:
            eliza_inference_choose(context, text.c_str(), labels, 2, nullptr, &choice, nullptr, error.out());
            return;
        case 4: eliza_inference_embed(context, text.data(), text.size(), 1, values, 4096, &size, error.out()); return;
        case 5:
            eliza_inference_llm_eot_score(context, prompt.data(), prompt.size(), 5, values, &top, values, error.out());
            return;
        case 6: {
            ErrorText json;
            eliza_inference_describe(context, json.out(), error.out());
            return;
        }
        default:
            return with_stream([&](EliLlmStream * stream) {
                const std::string file = testing::TempDir() + "ending" + std::to_string(getpid());
                eliza_inference_llm_stream_save_slot(stream, file.c_str(), error.out());
                eliza_inference_llm_stream_restore_slot(stream, file.c_str(), error.out());
                std::remove(file.c_str());
            });
    }
}

// As a static object of a program does. Those of this program are never destroyed (platform/static_destructors.cpp).
void destroy_at_exit(EliInferenceContext * context) {
#if !defined(_WIN32)
    using Register = int (*)(void (*)(EliInferenceContext *), EliInferenceContext *, void *);
    reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "__cxa_atexit"))(eliza_inference_destroy, context, nullptr);
#else
    static_cast<void>(context);
#endif
}

TEST_F(ForkedProcess, EndsWhileThreadsAreInsideTheLibrary) {
    constexpr int n_kinds = 8;
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(status_of_child([i] {
                      EliInferenceContext * own = create({{"n_threads", "2"}}).release();
                      if (i % 2 == 1) destroy_at_exit(own);
                      for (int thread = 0; thread < n_kinds; ++thread) {
                          std::thread([own, thread, i] {
                              for (;;) {
                                  call_while_ending(own, i % 3 == 0 ? 0 : thread);
                                  // Calls with a destroyed context fail at once. They must not occupy all cores.
                                  if (i % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              }
                          }).detach();
                      }
                      std::this_thread::sleep_for(std::chrono::milliseconds(20 + 7 * i));
                  }),
                  0)
            << i;
    }
}

TEST_F(ForkedProcess, CannotUseItsParentsModel) {
    EXPECT_EQ(status_of_child([&] {
                  ErrorText error;
                  const int32_t token = 5;
                  const bool is_rejected =
                      eliza_inference_llm_stream_prefill(stream.get(), &token, 1, error.out()) == ELIZA_ERR_INVALID_ARG;
                  const bool is_named = error.text().find("forked") != std::string::npos;
                  stream.reset();   // does nothing
                  context.reset();  // does nothing either
                  if (!is_rejected || !is_named) std::_Exit(8);
              }),
              0);
    decide(context);
}

TEST(LastStatus, GivesTheReasonForANullHandle) {
    ErrorText error;
    EXPECT_EQ(eliza_inference_create("/no/such/model", error.out()), nullptr);
    EXPECT_EQ(eliza_inference_last_status(), ELIZA_ERR_BUNDLE_INVALID);
    const ContextHandle context = create({{"n_slots", "1"}, {"slot_wait_ms", "0"}});
    const StreamHandle only = open(context);
    const eliza_llm_stream_config_t cfg = config();
    EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
    EXPECT_EQ(eliza_inference_last_status(), ELIZA_ERR_BUSY);
    EXPECT_EQ(eliza_inference_prepare_choices(context.get(), "[]", 2, nullptr, error.out()), nullptr);
    EXPECT_EQ(eliza_inference_last_status(), ELIZA_ERR_INVALID_ARG);
}

TEST(Callbacks, ForProgressMayThrow) {
    const ContextHandle context = create({{"n_ctx", "8192"}, {"n_batch", "64"}, {"n_threads", "1"}});
    ASSERT_EQ(eliza_inference_set_progress_callback(
                  context.get(),
                  [](const char * stage, float, void *) {
                      if (stage[0] == 'p') throw std::runtime_error("the window is closed");
                  },
                  nullptr, nullptr),
              0);
    const std::vector<int32_t> prompt(3000, 50);
    const StreamHandle stream = open(context), other = open(context);
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), prompt.data(), prompt.size(), error.out()),
              ELIZA_ERR_FFI_FAULT);
    EXPECT_EQ(error.text(), "the window is closed");
    eliza_inference_set_progress_callback(context.get(), nullptr, nullptr, nullptr);
    const StreamHandle quiet = open(context);
    prefill(quiet, {5, 6, 7});  // the queue is empty
    EXPECT_EQ(pull(quiet, 2).tokens.size(), 2u);
}

struct Lines {
    std::vector<std::string> severe;

    Lines() {
        eliza_inference_set_log_callback(
            [](int level, const char * text, void * lines) {
                if (level >= static_cast<int>(LogLevel::warning)) static_cast<Lines *>(lines)->severe.push_back(text);
            },
            this);
    }
    ~Lines() { eliza_inference_set_log_callback(nullptr, nullptr); }
};

TEST(Log, HasNoWarningsAboutFullCachesThatMakeRoom) {
    const ContextHandle context = create({{"n_ctx", "512"}, {"n_slots", "4"}, {"n_threads", "1"}});
    const Lines lines;
    for (int32_t round = 0; round < 12; ++round) {  // the tokens of earlier rounds are removed
        const StreamHandle stream = open(context);
        prefill(stream, std::vector<int32_t>(300, 40 + round));
        EXPECT_EQ(pull(stream, 2).status, 0);
    }
    EXPECT_EQ(lines.severe, std::vector<std::string>{});
}

TEST(Log, KeepsTheOuterReasonAfterAnInnerFailure) {
    init_backend();
    const auto fail = [](const std::string & path) {
        const llama_model_ptr model(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
        EXPECT_EQ(model, nullptr);
    };
    const LlamaErrorCapture outer;
    fail("/no/such/first.gguf");
    {
        const LlamaErrorCapture inner;
        fail("/no/such/second.gguf");
        const std::string text = inner.error(ELIZA_ERR_FFI_FAULT, "it failed").what();
        EXPECT_NE(text.find("second.gguf"), std::string::npos) << text;
    }
    const std::string text = outer.error(ELIZA_ERR_FFI_FAULT, "it failed").what();
    EXPECT_NE(text.find("first.gguf"), std::string::npos) << text;
}

TEST(Log, InnerErrorsReachTheOuterCapture) {
    init_backend();
    const LlamaErrorCapture outer;
    { const LlamaErrorCapture inner; }
    const llama_model_ptr model(llama_model_load_from_file("/no/such/model.gguf", llama_model_default_params()));
    const std::string text = outer.error(ELIZA_ERR_FFI_FAULT, "it failed").what();
    EXPECT_NE(text.find("/no/such/model.gguf"), std::string::npos) << text;
}

}  // namespace
}  // namespace eliza::test
