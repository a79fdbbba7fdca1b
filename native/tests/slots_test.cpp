// The assignment of slots to streams, and the order in which tokens are removed.

#include "engine/cache/slots.h"

#include <gtest/gtest.h>

#include "error.h"

namespace eliza {
namespace {

SlotWish wish(int32_t id, const char * cache_key) {
    SlotWish wanted;
    wanted.id = id;
    wanted.cache_key = cache_key;
    return wanted;
}

CancelFlag never;

TEST(Slots, TheLeastRecentlyUsedFreeOneIsTaken) {
    SlotTable slots(3);
    Slot & a = slots.acquire(wish(-1, ""), never);
    Slot & b = slots.acquire(wish(-1, ""), never);
    Slot & c = slots.acquire(wish(-1, ""), never);
    slots.release(b);
    slots.release(a);
    slots.release(c);
    EXPECT_EQ(slots.acquire(wish(-1, ""), never).id, b.id);
    EXPECT_EQ(slots.acquire(wish(-1, ""), never).id, a.id);
    EXPECT_EQ(slots.acquire(wish(-1, ""), never).id, c.id);
}

TEST(Slots, AnUnusedSlotIsTakenBeforeOneWithTokens) {
    SlotTable slots(2);
    Slot & first = slots.acquire(wish(-1, ""), never);
    first.cached = {1, 2, 3};
    slots.release(first);
    EXPECT_NE(slots.acquire(wish(-1, ""), never).id, first.id);
}

TEST(Slots, AKeyFindsItsSlotAgain) {
    SlotTable slots(3);
    Slot & keyed = slots.acquire(wish(-1, "room-7"), never);
    slots.release(keyed);
    slots.release(slots.acquire(wish(-1, "other"), never));
    EXPECT_EQ(slots.acquire(wish(-1, "room-7"), never).id, keyed.id);
}

TEST(Slots, UnneededTokensAreRemovedLeastRecentlyUsedFirst) {
    SlotTable slots(3);
    Slot & a = slots.acquire(wish(-1, ""), never);
    Slot & b = slots.acquire(wish(-1, ""), never);
    Slot & c = slots.acquire(wish(-1, ""), never);
    for (Slot * slot : {&a, &b, &c}) {
        slot->cached = {1, 2, 3};
        slot->n_wanted = 3;
    }
    EXPECT_EQ(slots.least_recently_used(), nullptr);  // all three belong to open streams
    slots.release(c);
    slots.release(a);
    EXPECT_EQ(slots.least_recently_used(), &c);
    c.cached.clear();
    EXPECT_EQ(slots.least_recently_used(), &a);
}

TEST(Slots, ATakenOrUnknownSlotIsAnError) {
    SlotTable slots(1);
    slots.acquire(wish(0, ""), never);
    EXPECT_THROW(slots.acquire(wish(0, ""), never), Error);
    EXPECT_THROW(slots.acquire(wish(-1, ""), never), Error);
    EXPECT_THROW(slots.acquire(wish(1, ""), never), Error);
    EXPECT_THROW(slots.acquire(wish(-2, ""), never), Error);
}

}  // namespace
}  // namespace eliza
