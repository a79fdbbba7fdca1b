// Ranking labels that any tokens may spell: the probability of a label is the sum over all its spellings.

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "llama_grammar.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Texts = std::vector<std::string>;
using Tokens = std::vector<int32_t>;

constexpr double tolerance = 1e-3;  // the bounds of a proven ranking
constexpr double rounding = 1e-4;   // passes of other shapes round differently

std::string json_of(const Texts & texts) {
    std::string json = "[";
    for (size_t i = 0; i < texts.size(); ++i) json += (i > 0 ? ",\"" : "\"") + texts[i] + "\"";
    return json + "]";
}

struct Ranked {
    int status = 0;
    std::string error;
    std::vector<eliza_ranked_t> places;
    eliza_ranking_t summary{};
};

Ranked rank(const StreamHandle & stream, const Texts & texts, eliza_rank_options_t options) {
    options.size = sizeof options;
    const std::string json = json_of(texts);
    Ranked ranked;
    ranked.places.resize(std::max(1u, options.k));
    ErrorText error;
    ranked.status =
        eliza_inference_llm_stream_rank_texts(stream.get(), json.data(), json.size(), &options, ranked.places.data(),
                                              ranked.places.size(), &ranked.summary, error.out());
    ranked.error = error.text();
    ranked.places.resize(ranked.summary.n_ranked);
    return ranked;
}

eliza_rank_options_t first(uint32_t k) {
    eliza_rank_options_t options{};
    options.k = k;
    return options;
}

// Sums the probabilities of all spellings, one by one. llama.cpp's grammar tells which tokens may follow.
class AllSpellings {
public:
    AllSpellings(const ContextHandle & context, Tokens prompt, const Texts & texts)
        : context_(context), prompt_(std::move(prompt)), model_(load_model()) {
        gbnf_ = "root ::= ";
        for (size_t i = 0; i < texts.size(); ++i) gbnf_ += (i > 0 ? " | \"" : "\"") + texts[i] + "\"";
        follow({}, "", 1.0);
        for (const std::string & text : texts) of_texts_.push_back(of_text_[text]);
    }
    const std::vector<double> & of_texts() const { return of_texts_; }

private:
    void follow(const Tokens & spelling, const std::string & text, double probability) {
        if (probability < 1e-8) return;
        LlamaGrammar grammar(model_->vocab(), gbnf_);
        for (const int32_t token : spelling) grammar.accept(token);
        const std::vector<Token> allowed = grammar.allowed();
        const std::vector<double> shares = shares_after(spelling, allowed);
        for (size_t i = 0; i < allowed.size(); ++i) {
            if (llama_vocab_is_eog(model_->vocab(), allowed[i])) {
                of_text_[text] += probability * shares[i];
                continue;
            }
            Tokens longer = spelling;
            longer.push_back(allowed[i]);
            follow(longer, text + std::string(model_->vocabulary()->all().text(allowed[i])), probability * shares[i]);
        }
    }

    std::vector<double> shares_after(const Tokens & spelling, const std::vector<Token> & allowed) const {
        Leaves leaves;
        for (const Token token : allowed) leaves.push_back({token});
        const StreamHandle stream = open(context_, full_precision_config());
        prefill(stream, prompt_);
        const ChoicesHandle choices = prepare(context_, leaves);
        const eliza_ending_t after{spelling.data(), spelling.size(), choices.get()};
        std::vector<double> shares(allowed.size());
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_score_endings(stream.get(), &after, 1, shares.data(), nullptr, nullptr,
                                                           shares.size(), error.out()),
                  static_cast<int>(shares.size()))
            << error.text();
        for (double & share : shares) share = std::exp(share);
        return shares;
    }

    const ContextHandle & context_;
    const Tokens prompt_;
    const std::shared_ptr<Model> model_;
    std::string gbnf_;
    std::map<std::string, double> of_text_;
    std::vector<double> of_texts_;
};

void expect_the_best(const Ranked & ranked, const std::vector<double> & probabilities) {
    ASSERT_EQ(ranked.status, 0) << ranked.error;
    ASSERT_EQ(ranked.summary.proven, 1);
    double rest = 1.0, before = 1.0;
    std::vector<bool> is_ranked(probabilities.size(), false);
    for (const eliza_ranked_t & place : ranked.places) {
        const double exact = probabilities[static_cast<size_t>(place.label)];
        EXPECT_LE(std::exp(place.logprob), exact + rounding);
        EXPECT_GE(std::exp(place.most_logprob), exact - rounding);
        EXPECT_LE(std::exp(place.most_logprob) - std::exp(place.logprob), tolerance + rounding);
        EXPECT_LE(exact, before + rounding);
        before = exact;
        rest -= exact;
        is_ranked[static_cast<size_t>(place.label)] = true;
    }
    for (size_t i = 0; i < probabilities.size(); ++i) {
        if (!is_ranked[i]) {
            EXPECT_LE(probabilities[i], before + rounding);
        }
    }
    EXPECT_GE(ranked.summary.rest, rest - rounding);
}

class RankTexts : public testing::Test {
protected:
    static ContextHandle make_context(const std::string & strategy = "auto") {
        return create({{"n_ctx", "2048"}, {"n_threads", "1"}, {"strategy", strategy}}, f32_model_path());
    }
    const ContextHandle context = make_context();

    static StreamHandle open_after(const Tokens & prompt, const ContextHandle & in) {
        StreamHandle stream = open(in, full_precision_config());
        prefill(stream, prompt);
        return stream;
    }
};

TEST_F(RankTexts, FindTheLabelsWithTheHighestSumsOverAllSpellings) {
    static const Texts pieces = {"SE", "ND", "GO", "A", "é", " x", "12"};
    std::mt19937 random(3);
    int64_t n_passes = 0;
    for (size_t n_texts = 2; n_texts < 10; ++n_texts) {
        Texts texts;
        while (texts.size() < n_texts) {
            std::string text;
            for (size_t n = 1 + random() % 2; n > 0; --n) text += pieces[random() % pieces.size()];
            if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
        }
        Tokens prompt(10);
        for (int32_t & token : prompt) token = static_cast<int32_t>(300 + random() % 600);
        const AllSpellings all(context, prompt, texts);
        double sum = 0.0;
        for (const double probability : all.of_texts()) sum += probability;
        ASSERT_NEAR(sum, 1.0, rounding);
        for (const char * strategy : {"auto", "token-by-token"}) {
            const ContextHandle in = make_context(strategy);
            for (const uint32_t k : {1u, 3u}) {
                const Ranked ranked = rank(open_after(prompt, in), texts, first(k));
                ASSERT_EQ(ranked.places.size(), std::min<size_t>(k, texts.size()));
                expect_the_best(ranked, all.of_texts());
                n_passes += ranked.summary.forward_passes;
            }
        }
    }
    EXPECT_GT(n_passes, 8);
}

TEST_F(RankTexts, GroupsHaveTheSumsOfTheirLabels) {
    const Texts texts = {"GO", "GO A", "SEND", "SE", "A"};
    const std::vector<int32_t> groups = {0, 0, 1, 1, 2};
    const Tokens prompt = {300, 310, 320, 330};
    const std::vector<double> each = AllSpellings(context, prompt, texts).of_texts();
    eliza_rank_options_t options = first(3);
    options.groups = groups.data();
    options.n_groups = groups.size();
    expect_the_best(rank(open_after(prompt, context), texts, options), {each[0] + each[1], each[2] + each[3], each[4]});
}

TEST_F(RankTexts, AgainNeedsNoPass) {
    const StreamHandle stream = open_after({300, 310, 320}, context);
    const Texts texts = {"SEND_EMAIL", "SEND_MESSAGE", "IGNORE"};
    EXPECT_GT(rank(stream, texts, first(2)).summary.forward_passes, 0);
    EXPECT_EQ(rank(stream, texts, first(2)).summary.forward_passes, 0);
    prefill(stream, {400});
    EXPECT_GT(rank(stream, texts, first(2)).summary.forward_passes, 0);
}

TEST_F(RankTexts, WithoutPassesTellBounds) {
    const Texts texts = {"SEND", "SET", "GO"};
    const Tokens prompt = {300, 310, 320};
    const std::vector<double> exact = AllSpellings(context, prompt, texts).of_texts();
    eliza_rank_options_t options = first(2);
    options.max_passes = -1;
    const Ranked ranked = rank(open_after(prompt, context), texts, options);
    EXPECT_EQ(ranked.status, 0) << ranked.error;
    EXPECT_EQ(ranked.summary.proven, 0);
    EXPECT_EQ(ranked.summary.forward_passes, 0);
    EXPECT_EQ(ranked.summary.rows_read, 1);  // the logits after the prompt are known
    for (const eliza_ranked_t & place : ranked.places) {
        EXPECT_LE(std::exp(place.logprob), exact[static_cast<size_t>(place.label)] + rounding);
        EXPECT_GE(std::exp(place.most_logprob), exact[static_cast<size_t>(place.label)] - rounding);
    }
}

TEST_F(RankTexts, LeaveTheConversationUnchanged) {
    const Tokens prompt = {300, 310, 320};
    const StreamHandle ranked = open_after(prompt, context), other = open_after(prompt, context);
    rank(ranked, {"SEND_EMAIL", "SEND_MESSAGE"}, first(1));
    EXPECT_EQ(push(ranked, 8).tokens, push(other, 8).tokens);
}

TEST_F(RankTexts, AFullContextEndsTheSearchWithBounds) {
    const ContextHandle small = create({{"n_ctx", "256"}, {"n_threads", "1"}}, f32_model_path());
    const StreamHandle stream = open_after(Tokens(254, 300), small);
    const Ranked ranked = rank(stream, {"SEND_EMAIL_NOW", "SEND_EMAIL_SOON"}, first(1));
    EXPECT_EQ(ranked.status, 0) << ranked.error;
    EXPECT_EQ(ranked.summary.proven, 0);
    EXPECT_EQ(push(stream, 1).tokens.size(), 1u);
}

TEST_F(RankTexts, ErrorsNameTheArgument) {
    const StreamHandle stream = open_after({300, 310, 320}, context);
    EXPECT_EQ(rank(stream, {}, first(1)).error, "choices: expected at least one string, got none");
    EXPECT_EQ(rank(stream, {"A", "A"}, first(1)).error, "choices[1] is the same as choices[0]");
    eliza_rank_options_t options = first(1);
    options.rule = ELIZA_RANK_JOINT;
    EXPECT_EQ(rank(stream, {"A", "B"}, options).error, "options.rule: labels in any tokens need ELIZA_RANK_LEGAL");
    EXPECT_EQ(rank(stream, {"A", "B"}, first(1)).status, 0);
}

}  // namespace
}  // namespace eliza::test
