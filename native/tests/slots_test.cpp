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

TEST(Slots, TheLeastRecentlyUsedFreeOneIsTaken) {
    SlotTable slots(3);
    Slot & a = slots.acquire(wish(-1, ""));
    Slot & b = slots.acquire(wish(-1, ""));
    Slot & c = slots.acquire(wish(-1, ""));
    slots.release(b);
    slots.release(a);
    slots.release(c);
    EXPECT_EQ(slots.acquire(wish(-1, "")).id, b.id);
    EXPECT_EQ(slots.acquire(wish(-1, "")).id, a.id);
    EXPECT_EQ(slots.acquire(wish(-1, "")).id, c.id);
}

TEST(Slots, AnUnusedSlotIsTakenBeforeOneWithTokens) {
    SlotTable slots(2);
    Slot & first = slots.acquire(wish(-1, ""));
    first.cached = {1, 2, 3};
    slots.release(first);
    EXPECT_NE(slots.acquire(wish(-1, "")).id, first.id);
}

TEST(Slots, AKeyFindsItsSlotAgain) {
    SlotTable slots(3);
    Slot & keyed = slots.acquire(wish(-1, "room-7"));
    slots.release(keyed);
    slots.release(slots.acquire(wish(-1, "other")));
    EXPECT_EQ(slots.acquire(wish(-1, "room-7")).id, keyed.id);
}

TEST(Slots, UnneededTokensAreRemovedLeastRecentlyUsedFirst) {
    SlotTable slots(3);
    Slot & a = slots.acquire(wish(-1, ""));
    Slot & b = slots.acquire(wish(-1, ""));
    Slot & c = slots.acquire(wish(-1, ""));
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
    slots.acquire(wish(0, ""));
    EXPECT_THROW(slots.acquire(wish(0, "")), Error);
    EXPECT_THROW(slots.acquire(wish(-1, "")), Error);
    EXPECT_THROW(slots.acquire(wish(1, "")), Error);
    EXPECT_THROW(slots.acquire(wish(-2, "")), Error);
}

}  // namespace
}  // namespace eliza
