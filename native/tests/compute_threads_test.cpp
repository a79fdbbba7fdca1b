// The number of threads for a pass.

#include "engine/pass/compute_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/pass/embedder.h"
#include "engine_parts.h"
#include "platform/machine.h"
#include "posix.h"

namespace eliza {
namespace {

TEST(BusyMachineGuard, AllowsAllThreadsWhileTheMachineIsIdle) {
    BusyMachineGuard guard;
    for (int pass = 0; pass < 100; ++pass) {
        EXPECT_EQ(guard.limit(8), 8);
        guard.note_pass(2000, 100);       // a short wait occasionally happens anywhere
        guard.note_pass(5000000, 50000);  // also a longer one, in a long pass
    }
}

TEST(BusyMachineGuard, UsesOneThreadForLongerEachTimeAndRecovers) {
    BusyMachineGuard guard;
    const auto passes_on_one = [&] {
        int n = 0;
        while (guard.limit(8) == 1) ++n;
        return n;
    };
    guard.note_pass(20000, 9000);
    guard.note_pass(20000, 9000);
    EXPECT_EQ(passes_on_one(), 16);
    guard.note_pass(20000, 9000);
    EXPECT_EQ(passes_on_one(), 32);
    for (int pass = 0; pass < 16; ++pass) guard.note_pass(2000, 0);
    guard.note_pass(20000, 9000);
    guard.note_pass(20000, 9000);
    EXPECT_EQ(passes_on_one(), 16);
}

TEST(BusyMachineGuard, ForgivesOnePassThatLostItsCores) {
    BusyMachineGuard guard;
    for (int pass = 0; pass < 100; ++pass) {
        EXPECT_EQ(guard.limit(8), 8);
        guard.note_pass(20000, 9000);
        guard.note_pass(20000, 0);
    }
}

TEST(UsefulThreadCount, GrowsWithTheWorkOfAPass) {
    EXPECT_EQ(useful_thread_count(8, 1'000'000, 1), 1);
    EXPECT_EQ(useful_thread_count(8, 1'000'000, 100), 1);
    EXPECT_EQ(useful_thread_count(8, 100'000'000, 1), 3);
    EXPECT_EQ(useful_thread_count(8, 7'000'000'000, 1), 8);
    EXPECT_EQ(useful_thread_count(8, 7'000'000'000, 512), 8);
    for (const uint64_t n_params : {1'000'000ull, 30'000'000ull, 160'000'000ull, 7'000'000'000ull}) {
        for (int32_t n_tokens = 1; n_tokens < 64; ++n_tokens) {
            EXPECT_GE(useful_thread_count(8, n_params, n_tokens + 1), useful_thread_count(8, n_params, n_tokens))
                << n_params << " weights, " << n_tokens << " tokens";
        }
    }
}

constexpr const char * no_limit = "Windows has no limit on the number of a user's threads";

// Returns the result of `body` in a child process, 0 to 255, or -1 if the child did not finish.
template <typename Body>
int in_a_child(const Body & body) {
    const pid_t child = fork();
    if (child == 0) {
        int result = 254;
        try {
            result = body();
        } catch (...) {
        }
        _exit(result);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Runs as a user other than root, because the limit does not apply to root, and allows no further thread.
bool forbid_threads() {
    const rlimit none{1, 1};
    return (geteuid() != 0 || setuid(65534) == 0) && setrlimit(RLIMIT_NPROC, &none) == 0;
}

TEST(StartableThreadCount, IsTheRequestedNumberIfPossible) { EXPECT_EQ(startable_thread_count(4), 4); }

TEST(StartableThreadCount, IsLimitedByTheSystem) {
    SKIP_ON_WINDOWS(no_limit);
    constexpr int cannot_forbid = 200;
    const int n = in_a_child([&] { return forbid_threads() ? startable_thread_count(4) : cannot_forbid; });
    if (n == cannot_forbid) GTEST_SKIP() << "the number of this user's processes cannot be limited";
    EXPECT_EQ(n, 1);
}

class ThreadsOfPasses : public test::EngineParts {};

TEST_F(ThreadsOfPasses, PassesRunIfTheSystemAllowsNoThreads) {
    SKIP_ON_WINDOWS(no_limit);
    options.n_threads = 2;
    const auto decodes = [&] {
        const auto own = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads), options,
                                                   DecoderSettings{});
        Sequence text(own, {}, cancelled);
        text.append(5);
        return text.logits() != nullptr ? 0 : 1;
    };
    EXPECT_EQ(in_a_child([&] { return forbid_threads() ? decodes() : 0; }), 0);
}

TEST_F(ThreadsOfPasses, EmbeddingWorksIfTheSystemAllowsNoThreads) {
    SKIP_ON_WINDOWS(no_limit);
    const auto embeds = [&] {
        Embedder embedder(model, std::make_shared<ComputeThreads>(4));
        return embedder.embed("the cat", LLAMA_POOLING_TYPE_MEAN).empty() ? 1 : 0;
    };
    EXPECT_EQ(in_a_child([&] { return forbid_threads() ? embeds() : 0; }), 0);
}

TEST(ComputeThreadsTurns, AreGivenInTheOrderOfRequests) {
    ComputeThreads threads(1);
    std::vector<int> order;
    std::vector<std::thread> others;
    std::atomic<int> n_waiting{0};
    {
        const ComputeThreads::Turn first(threads, 1, 1);
        for (int i = 0; i < 4; ++i) {
            others.emplace_back([&, i] {
                while (n_waiting != i) std::this_thread::yield();
                n_waiting = i + 1;
                const ComputeThreads::Turn turn(threads, 1, 1);
                order.push_back(i);
            });
            while (n_waiting != i + 1) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until the thread waits
        }
        EXPECT_TRUE(order.empty());
    }
    for (std::thread & other : others) other.join();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(ComputeThreadsTurns, DoNotUseTheCoresOfOwnThreads) {
    ComputeThreads threads(0);
    constexpr uint64_t many_weights = 7'000'000'000;
    const auto n_threads = [&] { return ComputeThreads::Turn(threads, many_weights, 1).n_threads(); };
    EXPECT_EQ(n_threads(), threads.size());
    {
        const OwnThreads own(threads.size());
        EXPECT_EQ(n_threads(), 1);
    }
    EXPECT_EQ(n_threads(), threads.size());
}

// Tokenizing or embedding during a pass takes cores from the pass. That does not mean that other programs use the
// machine.
TEST(OwnThreads, AreDetectedIfTheyRanAfterTheMark) {
    OwnThreads::Mark mark = OwnThreads::mark();
    EXPECT_FALSE(OwnThreads::ran_since(mark));
    { const OwnThreads between(2); }
    EXPECT_TRUE(OwnThreads::ran_since(mark));
    {
        const OwnThreads before(1);
        mark = OwnThreads::mark();
    }
    EXPECT_TRUE(OwnThreads::ran_since(mark));
    EXPECT_FALSE(OwnThreads::ran_since(OwnThreads::mark()));
}

TEST_F(ThreadsOfPasses, AreAtMostTheNumberOfCpus) {
    SKIP_ON_WINDOWS("this test limits the CPUs of a child process, and Windows has no fork()");
    EXPECT_EQ(in_a_child([] { return use_one_cpu() ? usable_cpu_count() : 1; }), 1);
}

TEST(MicrosecondsWithoutCore, GrowWhileAnotherThreadHasTheOnlyCpu) {
    SKIP_ON_WINDOWS("Windows does not report waiting times");
    if (!std::ifstream("/proc/self/schedstat").good()) GTEST_SKIP() << "this system does not report waiting times";
    const int grew = in_a_child([] {
        if (!use_one_cpu()) return 1;
        std::atomic<bool> stop{false};
        std::thread other([&] {
            while (!stop) {
            }
        });
        const int64_t before = microseconds_without_core({});
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (std::chrono::steady_clock::now() < end) {
        }
        const int64_t waited = microseconds_without_core({}) - before;
        stop = true;
        other.join();
        return waited > 5000 ? 1 : 0;
    });
    EXPECT_EQ(grew, 1);
}

}  // namespace
}  // namespace eliza
