// The queue of requests for passes: whose turn it is.

#include "engine/pass/pass_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "engine_parts.h"

namespace eliza::test {
namespace {

class PassQueues : public EngineParts {
protected:
    static Options options_of_small_batches() {
        Options options = small_options();
        options.n_batch = 16;
        return options;
    }
    const Options few = options_of_small_batches();
    const std::shared_ptr<Decoder> small_batches = std::make_shared<Decoder>(
        model, std::make_shared<ComputeThreads>(1), few, DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}});
    CancelFlag cancelled_reader;
    Sequence reader{small_batches, {}, cancelled_reader};
    Sequence saver{small_batches, {}, cancelled};

    // Returns whether a request to use the context alone was served while another thread was in its callback.
    bool is_served_during_callback(bool cancel) {
        const std::vector<llama_token> tokens(100, 20);
        reader.append(tokens.data(), tokens.size());
        std::promise<void> in_callback, served;
        bool is_first = true, was_served = false;
        std::thread thread([&] {
            const Progress wait = [&](const char *, float) {
                if (std::exchange(is_first, false)) {
                    in_callback.set_value();
                    was_served = served.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
                }
            };
            if (cancel) {
                EXPECT_THROW(reader.decode(Rows::whole, wait), Error);
            } else {
                reader.decode(Rows::whole, wait);
            }
        });
        in_callback.get_future().wait();
        if (cancel) {
            cancelled_reader.set();
            small_batches->queue().wake_cancelled();
        }
        saver.run_alone([] {});
        served.set_value();
        thread.join();
        return was_served;
    }
};

TEST_F(PassQueues, NobodyWaitsForACallback) { EXPECT_TRUE(is_served_during_callback(/*cancel=*/false)); }

TEST_F(PassQueues, NobodyWaitsForTheCallbackOfACancelledRequest) {
    EXPECT_TRUE(is_served_during_callback(/*cancel=*/true));
}

TEST_F(PassQueues, LogitsGoBeforeTexts) {
    auto & slots = small_batches->cache().slots();
    Slot & slot_of_text = slots.acquire({}, cancelled);
    Slot & slot_of_logits = slots.acquire({}, cancelled);
    const std::vector<llama_token> tokens(3, 20);
    StreamCounts added{};
    PassRequest text(slot_of_text, cancelled, added), logits(slot_of_logits, cancelled, added);
    text.text = tokens.data();
    text.n_text = tokens.size();
    text.n_rows = 1;
    logits.kind = PassRequest::Kind::logits;
    PassScheduler scheduler(small_batches->runner(), small_batches->cache(), /*by_time=*/false);

    const PassScheduler::Pass first = scheduler.select({&text, &logits}, false);
    EXPECT_EQ(first.kind, PassRequest::Kind::logits);
    EXPECT_EQ(first.members, std::vector<PassRequest *>{&logits});
    const PassScheduler::Pass second = scheduler.select({&text}, false);
    EXPECT_EQ(second.kind, PassRequest::Kind::text);
    EXPECT_EQ(second.members, std::vector<PassRequest *>{&text});

    slots.release(slot_of_text);
    slots.release(slot_of_logits);
}

}  // namespace
}  // namespace eliza::test
