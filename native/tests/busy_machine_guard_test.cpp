#include <gtest/gtest.h>

#include "engine/pass/threads.h"

namespace eliza {
namespace {

TEST(BusyMachineGuard, AllowsAllThreadsWhileTheMachineIsIdle) {
    BusyMachineGuard guard;
    for (int pass = 0; pass < 100; ++pass) {
        EXPECT_EQ(guard.limit(8), 8);
        guard.look_at_pass(2000, 100);       // a moment now and then happens anywhere
        guard.look_at_pass(5000000, 50000);  // also a longer one, in a pass that is long
    }
}

TEST(BusyMachineGuard, GoesDownToOneThreadLongerEachTimeAndComesBack) {
    BusyMachineGuard guard;
    const auto passes_on_one = [&] {
        int n = 0;
        while (guard.limit(8) == 1) ++n;
        return n;
    };
    guard.look_at_pass(20000, 9000);
    guard.look_at_pass(20000, 9000);
    EXPECT_EQ(passes_on_one(), 16);
    guard.look_at_pass(20000, 9000);
    EXPECT_EQ(passes_on_one(), 32);
    for (int pass = 0; pass < 16; ++pass) guard.look_at_pass(2000, 0);
    guard.look_at_pass(20000, 9000);
    guard.look_at_pass(20000, 9000);
    EXPECT_EQ(passes_on_one(), 16);
}

TEST(BusyMachineGuard, ForgivesOnePassThatLostItsCores) {
    BusyMachineGuard guard;
    for (int pass = 0; pass < 100; ++pass) {
        EXPECT_EQ(guard.limit(8), 8);
        guard.look_at_pass(20000, 9000);
        guard.look_at_pass(20000, 0);
    }
}

TEST(UsefulThreadCount, GrowsWithTheWorkOfAPass) {
    EXPECT_EQ(useful_thread_count(8, 1'000'000, 1), 1);
    EXPECT_EQ(useful_thread_count(8, 1'000'000, 100), 1);
    EXPECT_EQ(useful_thread_count(8, 100'000'000, 1), 3);
    EXPECT_EQ(useful_thread_count(8, 7'000'000'000, 1), 8);
    EXPECT_EQ(useful_thread_count(8, 7'000'000'000, 512), 8);
}

}  // namespace
}  // namespace eliza
