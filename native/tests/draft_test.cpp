// Drafts without a stream: predictions from the text itself, and the reports about them.

#include "engine/draft/draft.h"

#include "engine_parts.h"

namespace eliza::test {
namespace {

class DraftTest : public EngineParts {
protected:
    struct Event {
        size_t n_accepted;
        int rejected_from, rejected_to;
    };
    static void note(const EliVerifierEvent * event, void * user) {
        static_cast<std::vector<Event> *>(user)->push_back(
            {event->n_accepted, event->rejected_from, event->rejected_to});
    }
    void SetUp() override { hook->set(note, &events); }

    std::vector<Event> events;
    const std::shared_ptr<VerifierHook> hook = std::make_shared<VerifierHook>();
    Draft draft{{1, 4, ""}, sequence, options, hook};
};

TEST_F(DraftTest, ContinuesARepetition) {
    read("one two three one two three one two three one two");
    ASSERT_TRUE(draft.is_on());
    draft.decode(/*most=*/100, /*n_generated=*/0);
    EXPECT_GT(sequence.n_ahead(), 0u);
    EXPECT_LE(sequence.n_ahead(), 4u);
    EXPECT_EQ(sequence.counts().forward_passes, 1);
    EXPECT_FALSE(sequence.has_undecoded());
}

TEST_F(DraftTest, ReportsAcceptedAndRejectedTokens) {
    const std::vector<llama_token> three = tokens_of(" three");
    read("one two three one two three one two three one two");
    draft.decode(100, /*n_generated=*/10);
    const size_t n_ahead = sequence.n_ahead();
    ASSERT_GT(n_ahead, 0u);
    draft.compare(0);  // which cannot match
    EXPECT_EQ(counts.tokens_drafted, static_cast<int64_t>(n_ahead));
    EXPECT_EQ(counts.tokens_accepted, 0);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].n_accepted, 0u);
    EXPECT_EQ(events[0].rejected_from, 10);
    EXPECT_EQ(events[0].rejected_to, 10 + static_cast<int>(n_ahead) - 1);
}

TEST_F(DraftTest, DoesNotReportADroppedDraft) {
    read("one two three one two three one two three one two");
    draft.decode(100, 0);
    draft.drop();
    draft.compare(0);
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(counts.tokens_drafted, 0);
}

TEST_F(DraftTest, DecodesNothingWithoutADraft) {
    read("one two three one two three one two three one two");
    draft.decode(/*most=*/0, 0);
    EXPECT_EQ(sequence.counts().forward_passes, 0);
    EXPECT_TRUE(sequence.has_undecoded());
}

}  // namespace
}  // namespace eliza::test
