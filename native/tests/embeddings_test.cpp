// Embeddings, and the score of an end-of-turn token.

#include <atomic>
#include <cmath>
#include <thread>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "engine/pass/batch.h"
#include "test_session.h"

namespace eliza::test {
namespace {

class Embeddings : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}});

    std::vector<float> embed(const std::string & text, int pooling = 1) {
        int size = 0;
        ErrorText error;
        EXPECT_EQ(
            eliza_inference_embed(context.get(), text.data(), text.size(), pooling, nullptr, 0, &size, error.out()),
            ELIZA_ERR_INVALID_ARG);
        std::vector<float> values(static_cast<size_t>(size));
        EXPECT_EQ(eliza_inference_embed(context.get(), text.data(), text.size(), pooling, values.data(), values.size(),
                                        &size, error.out()),
                  0)
            << error.text();
        return values;
    }
    static double product(const std::vector<float> & a, const std::vector<float> & b) {
        double sum = 0.0;
        for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
        return sum;
    }
};

TEST_F(Embeddings, HaveUnitLengthAndDependOnlyOnTheText) {
    for (const int pooling : {1, 2, 3}) {
        const std::vector<float> cat = embed("the cat", pooling);
        ASSERT_EQ(cat.size(), static_cast<size_t>(llama_model_n_embd_out(load_model()->get())));
        EXPECT_NEAR(product(cat, cat), 1.0, 1e-5);
        EXPECT_NEAR(product(cat, embed("the cat", pooling)), 1.0, 1e-5);
        // In a causal model, the first token does not depend on the rest of the text.
        const double other = product(cat, embed("send an email to Bob", pooling));
        EXPECT_EQ(other < 0.9999, pooling != 2) << other;
    }
    EXPECT_LT(product(embed("the cat", 1), embed("the cat", 3)), 0.9999);
}

TEST_F(Embeddings, OfSeveralTextsAreThoseOfEachAlone) {
    const std::vector<std::string> texts = {"the cat", "send an email to Bob", "x", "the cat sat on the mat"};
    std::vector<const char *> bytes;
    std::vector<uint64_t> lengths;
    for (const std::string & text : texts) {
        bytes.push_back(text.data());
        lengths.push_back(text.size());
    }
    int size = 0;
    std::vector<float> all(texts.size() * 4096);
    ErrorText error;
    ASSERT_EQ(eliza_inference_embed_texts(context.get(), bytes.data(), lengths.data(), texts.size(), 1, 0, all.data(),
                                          all.size(), &size, error.out()),
              0)
        << error.text();
    for (size_t i = 0; i < texts.size(); ++i) {
        const std::vector<float> expected = embed(texts[i]);
        ASSERT_EQ(expected.size(), static_cast<size_t>(size));
        const std::vector<float> got(all.begin() + static_cast<ptrdiff_t>(i) * size,
                                     all.begin() + static_cast<ptrdiff_t>(i + 1) * size);
        EXPECT_GT(product(got, expected), 0.99999) << texts[i];
    }
    lengths[1] = 0;
    EXPECT_EQ(
        eliza_inference_rerank(context.get(), "a", 1, bytes.data(), lengths.data(), 1, all.data(), 1, error.out()),
        ELIZA_ERR_NOT_IMPLEMENTED);
    EXPECT_NE(error.text().find("not a reranker"), std::string::npos) << error.text();
}

// A text that is too long for the model is read in windows that overlap.
TEST_F(Embeddings, OfATextInWindowsAreTheirAverage) {
    std::string text;
    while (tokenize(context, text, true).size() < 4000) text += "many words and others ";
    const char * bytes = text.data();
    const uint64_t length = text.size();
    int size = 0;
    std::vector<float> room(4096);
    ErrorText error;
    ASSERT_EQ(eliza_inference_embed_texts(context.get(), &bytes, &length, 1, 1, 1, room.data(), room.size(), &size,
                                          error.out()),
              0)
        << error.text();
    room.resize(static_cast<size_t>(size));
    EXPECT_NEAR(product(room, room), 1.0, 1e-5);
    std::string part;
    while (tokenize(context, part, true).size() < 1000) part += "many words and others ";
    EXPECT_GT(product(room, embed(part)), 0.95);  // the text repeats itself
    EXPECT_LT(product(room, embed("a cat")), 0.95);
}

TEST_F(Embeddings, OfLongTextsWorkUpToTheModelsLimit) {
    std::string text;
    while (tokenize(context, text, true).size() < 700) text += "many words and ";
    const std::vector<float> values = embed(text);
    EXPECT_NEAR(product(values, values), 1.0, 1e-5);
    EXPECT_NEAR(product(embed("short"), embed("short")), 1.0, 1e-5);
    while (tokenize(context, text, true).size() < 4000) text += text;
    int size = 0;
    std::vector<float> room(4096);
    ErrorText error;
    EXPECT_EQ(
        eliza_inference_embed(context.get(), text.data(), text.size(), 1, room.data(), room.size(), &size, error.out()),
        ELIZA_ERR_INVALID_ARG);
    EXPECT_NE(error.text().find("text: expected at most "), std::string::npos) << error.text();
}

// llama.cpp pools the tokens of one pass, so the reference computes the whole text in one.
std::vector<float> embed_in_one_pass(const std::vector<llama_token> & tokens, enum llama_pooling_type pooling) {
    const auto model = load_model();
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = static_cast<uint32_t>(tokens.size());
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = 1;
    params.embeddings = true;
    params.pooling_type = pooling;
    const llama_context_ptr context = model->new_context(params, "for the reference");
    Batch batch;
    for (size_t i = 0; i < tokens.size(); ++i) batch.add(tokens[i], static_cast<llama_pos>(i), {0}, true);
    EXPECT_EQ(llama_decode(context.get(), batch.get()), 0);
    const float * values = llama_get_embeddings_seq(context.get(), 0);
    std::vector<float> embedding(values, values + llama_model_n_embd_out(model->get()));
    double sum = 0.0;
    for (const float value : embedding) sum += static_cast<double>(value) * value;
    for (float & value : embedding) value = static_cast<float>(value / std::sqrt(sum));
    return embedding;
}

TEST_F(Embeddings, DoNotDependOnTheNumberOfPasses) {
    std::string text;
    while (tokenize(context, text, true).size() < 1300) text += "many words and ";
    const std::vector<int32_t> tokens = tokenize(context, text, true);
    const std::vector<enum llama_pooling_type> poolings = {LLAMA_POOLING_TYPE_MEAN, LLAMA_POOLING_TYPE_CLS,
                                                           LLAMA_POOLING_TYPE_LAST};
    for (size_t i = 0; i < poolings.size(); ++i) {
        const std::vector<float> expected = embed_in_one_pass(tokens, poolings[i]);
        EXPECT_GT(product(embed(text, static_cast<int>(i) + 1), expected), 0.9999) << "pooling " << i + 1;
    }
}

#ifdef __GLIBC__
TEST_F(Embeddings, OfALongTextFreeTheirMemory) {
    const auto allocated = [] {
        const struct mallinfo2 info = mallinfo2();
        return info.uordblks + info.hblkhd;
    };
    std::string text;
    while (tokenize(context, text, true).size() < 1900) text += "many words and ";
    embed("short");
    const size_t before = allocated();
    embed(text);
    embed("short");
    EXPECT_LE(allocated(), before + (size_t(256) << 10));
}
#endif

TEST_F(Embeddings, ReportTheRoomTheyNeed) {
    int size = 0;
    float one = 7.0f;
    ErrorText error;
    EXPECT_EQ(eliza_inference_embed(context.get(), "a", 1, 1, &one, 1, &size, error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text(), "cap: expected room for " + std::to_string(size) + " numbers, got 1");
    EXPECT_EQ(one, 7.0f);
    EXPECT_EQ(eliza_inference_embed(context.get(), "a", 1, 4, &one, 1, &size, error.out()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text(), "pooling: expected 0 (the model's), 1 (mean), 2 (first) or 3 (last), got 4");
}

TEST_F(Embeddings, OfTokensAreThoseThatPoolingReads) {
    std::string text;
    while (tokenize(context, text, true).size() < 1300) text += "many words and ";
    const std::vector<int32_t> tokens = tokenize(context, text, true);
    const std::vector<int32_t> positions = {0, 700, static_cast<int32_t>(tokens.size()) - 1};
    std::vector<float> room(positions.size() * 4096);
    int32_t size = 0;
    ErrorText error;
    ASSERT_EQ(eliza_inference_token_embeddings(context.get(), tokens.data(), nullptr, tokens.size(), positions.data(),
                                               positions.size(), room.data(), room.size(), &size, error.out()),
              0)
        << error.text();
    const auto of_unit_length = [&](size_t row) {
        std::vector<float> values(room.begin() + static_cast<long>(row) * size,
                                  room.begin() + static_cast<long>(row + 1) * size);
        const double length = std::sqrt(product(values, values));
        EXPECT_GT(std::abs(length - 1.0), 0.01) << "the values are not normalized";
        for (float & value : values) value = static_cast<float>(value / length);
        return values;
    };
    EXPECT_GT(product(of_unit_length(0), embed(text, 2)), 0.9999);
    EXPECT_GT(product(of_unit_length(2), embed(text, 3)), 0.9999);
    EXPECT_LT(product(of_unit_length(1), embed(text, 3)), 0.9999);
}

TEST_F(Embeddings, OfTokensNeedAscendingPositionsAndRoom) {
    const std::vector<int32_t> tokens = tokenize(context, "the cat", true);
    std::vector<float> room(2 * 4096, 7.0f);
    const auto error_of = [&](std::vector<int32_t> positions, size_t cap) {
        int32_t size = 0;
        ErrorText error;
        EXPECT_EQ(
            eliza_inference_token_embeddings(context.get(), tokens.data(), nullptr, tokens.size(), positions.data(),
                                             positions.size(), room.data(), cap, &size, error.out()),
            ELIZA_ERR_INVALID_ARG);
        EXPECT_EQ(size, llama_model_n_embd_out(load_model()->get()));
        EXPECT_EQ(room[0], 7.0f);
        return error.text();
    };
    const std::string last = std::to_string(tokens.size() - 1);
    EXPECT_EQ(error_of({1, 1}, room.size()), "positions[1]: expected 2 to " + last + ", got 1");
    EXPECT_EQ(error_of({static_cast<int32_t>(tokens.size())}, room.size()),
              "positions[0]: expected 0 to " + last + ", got " + std::to_string(tokens.size()));
    EXPECT_EQ(error_of({}, room.size()), "positions: expected 1 to " + std::to_string(tokens.size()) + ", got 0");
    EXPECT_EQ(error_of({0}, 5).rfind("cap: expected room for 1 times ", 0), 0u);
}

TEST_F(Embeddings, OnlyModelsThatReadRolesTakeThem) {
    const std::vector<int32_t> tokens = tokenize(context, "the cat", true);
    const std::vector<int32_t> roles(tokens.size(), 0), positions = {0};
    std::vector<float> room(4096);
    int32_t size = 0;
    ErrorText error;
    EXPECT_EQ(eliza_inference_token_embeddings(context.get(), tokens.data(), roles.data(), tokens.size(),
                                               positions.data(), 1, room.data(), room.size(), &size, error.out()),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text().rfind("roles: expected NULL, because models of the architecture ", 0), 0u) << error.text();
}

TEST_F(Embeddings, TheScoreOfATokenIsItsProbability) {
    const std::vector<int32_t> prompt = chat_prompt(context, "hello");
    float sum = 0.0f, best = 0.0f, top_probability = 0.0f;
    int32_t top = -1;
    for (int32_t target = 0; target < 2048; ++target) {
        float probability = -1.0f;
        ErrorText error;
        ASSERT_EQ(eliza_inference_llm_eot_score(context.get(), prompt.data(), prompt.size(), target, &probability, &top,
                                                &top_probability, error.out()),
                  0)
            << error.text();
        sum += probability;
        best = std::max(best, probability);
        if (target == top) {
            EXPECT_EQ(probability, top_probability);
        }
    }
    EXPECT_NEAR(sum, 1.0f, 1e-3f);
    EXPECT_EQ(best, top_probability);
    const StreamHandle stream = open(context);
    prefill(stream, prompt);
    const Output next = pull(stream, 1);
    ASSERT_EQ(next.tokens.size(), 1u);
    EXPECT_EQ(next.tokens[0], top);
}

TEST_F(Embeddings, AScoreNeedsTokensAndAFreeSlot) {
    context = create({{"n_threads", "1"}, {"n_slots", "1"}, {"n_ctx", "128"}, {"slot_wait_ms", "0"}});
    ErrorText error;
    const auto score = [&](const std::vector<int32_t> & tokens, int32_t target) {
        return eliza_inference_llm_eot_score(context.get(), tokens.data(), tokens.size(), target, nullptr, nullptr,
                                             nullptr, error.out());
    };
    EXPECT_EQ(score({30}, 31), 0);
    EXPECT_EQ(score({}, 31), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(score({30}, 99999999), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(score({-1}, 31), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(score(std::vector<int32_t>(1000, 30), 31), ELIZA_ERR_CONTEXT_FULL);
    {
        const StreamHandle stream = open(context);
        EXPECT_EQ(score({30}, 31), ELIZA_ERR_BUSY);
        EXPECT_NE(error.text().find("n_slots"), std::string::npos) << error.text();
    }
    EXPECT_EQ(score({30}, 31), 0);
}

// Destroying the context cancels the running call and waits for it.
TEST_F(Embeddings, DestroyingTheContextEndsARunningCall) {
    std::string text;
    while (tokenize(context, text, true).size() < 700) text += "many words and ";
    const std::vector<int32_t> tokens = tokenize(context, text, true);
    for (const bool of_score : {false, true}) {
        for (int wait = 0; wait < 6; ++wait) {
            ContextHandle busy = create({{"n_threads", "1"}});
            tokenize(busy, "x");  // loads the model
            std::atomic<int> n_inside{0};
            std::atomic<bool> is_over{false};
            std::thread caller([&, handle = busy.get()] {
                while (!is_over) {
                    std::vector<float> room(8192);
                    int size = 0;
                    float probability = 0.0f;
                    ++n_inside;
                    const int status = of_score ? eliza_inference_llm_eot_score(handle, tokens.data(), tokens.size(), 5,
                                                                                &probability, nullptr, nullptr, nullptr)
                                                : eliza_inference_embed(handle, text.data(), text.size(), 1,
                                                                        room.data(), room.size(), &size, nullptr);
                    --n_inside;
                    is_over = status != 0;
                }
            });
            while (n_inside == 0) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(3 * wait));
            busy.reset();
            // The call has left the library; the thread needs a moment to count itself out.
            for (int i = 0; i < 200 && n_inside > 0; ++i) std::this_thread::sleep_for(std::chrono::microseconds(50));
            EXPECT_EQ(n_inside, 0) << of_score << " after " << 3 * wait << " ms";
            caller.join();
        }
    }
}

}  // namespace
}  // namespace eliza::test
