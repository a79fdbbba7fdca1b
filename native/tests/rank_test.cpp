// Ranking: the labels that the search proves to be the most probable are those with the highest scores of all.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "mtp_test_model.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Tokens = std::vector<int32_t>;

const Tokens prompt = {300, 301, 302, 303, 304, 305, 306, 307, 308, 309};
constexpr double tolerance = 1e-4;  // passes of other shapes round differently

ContextHandle make_context(const std::string & strategy = "auto", const std::string & model = f32_model_path(),
                           const std::string & n_batch = "512") {
    return create({{"n_ctx", "2048"}, {"n_threads", "1"}, {"n_batch", n_batch}, {"strategy", strategy}}, model);
}

StreamHandle open_after_prompt(const ContextHandle & context) {
    StreamHandle stream = open(context, full_precision_config());
    prefill(stream, prompt);
    return stream;
}

struct Ranked {
    int status = 0;
    std::string error;
    std::vector<eliza_ranked_t> places;
    eliza_ranking_t summary{};
};

struct Wish {
    uint32_t k = 1;
    int32_t rule = ELIZA_RANK_LEGAL;
    int32_t max_passes = 0;
    std::vector<int32_t> groups{};
    Tokens after{};
};

Ranked rank(const StreamHandle & stream, const ChoicesHandle & labels, const Wish & wish) {
    eliza_rank_options_t options{};
    options.size = sizeof options;
    options.k = wish.k;
    options.rule = wish.rule;
    options.max_passes = wish.max_passes;
    options.groups = wish.groups.empty() ? nullptr : wish.groups.data();
    options.n_groups = wish.groups.size();
    const eliza_ending_t after{wish.after.data(), wish.after.size(), labels.get()};
    Ranked ranked;
    ranked.places.resize(wish.k);
    ErrorText error;
    ranked.status = eliza_inference_llm_stream_rank(stream.get(), &after, &options, ranked.places.data(),
                                                    ranked.places.size(), &ranked.summary, error.out());
    ranked.error = error.text();
    ranked.places.resize(ranked.summary.n_ranked);
    return ranked;
}

// The log-probability of every label, computed one by one.
std::vector<double> all_scores(const ContextHandle & context, const ChoicesHandle & labels, size_t n,
                               const Wish & wish) {
    const StreamHandle stream = open_after_prompt(context);
    const eliza_ending_t after{wish.after.data(), wish.after.size(), labels.get()};
    std::vector<double> scores(n);
    ErrorText error;
    const bool is_joint = wish.rule == ELIZA_RANK_JOINT;
    EXPECT_EQ(eliza_inference_llm_stream_score_endings(stream.get(), &after, 1, is_joint ? nullptr : scores.data(),
                                                       is_joint ? scores.data() : nullptr, nullptr, n, error.out()),
              static_cast<int>(n))
        << error.text();
    return scores;
}

std::vector<double> sums_of_groups(const std::vector<double> & scores, const std::vector<int32_t> & groups) {
    std::vector<double> sums(static_cast<size_t>(*std::max_element(groups.begin(), groups.end())) + 1);
    for (size_t i = 0; i < scores.size(); ++i) sums[static_cast<size_t>(groups[i])] += std::exp(scores[i]);
    for (double & sum : sums) sum = std::log(sum);
    return sums;  // log(0) for a group without labels
}

// Labels that score almost the same may change places.
void expect_the_best(const Ranked & ranked, std::vector<double> scores) {
    ASSERT_EQ(ranked.status, 0) << ranked.error;
    EXPECT_EQ(ranked.summary.proven, 1);
    double rest = 0.0;
    for (const double score : scores) rest += std::exp(score);
    for (const eliza_ranked_t & place : ranked.places) {
        EXPECT_NEAR(place.logprob, scores[static_cast<size_t>(place.label)], tolerance);
        EXPECT_EQ(place.logprob, place.most_logprob);
        rest -= std::exp(scores[static_cast<size_t>(place.label)]);
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    for (size_t i = 0; i < ranked.places.size(); ++i) EXPECT_NEAR(ranked.places[i].logprob, scores[i], tolerance);
    EXPECT_GE(ranked.summary.rest, rest - tolerance);
}

// Distinct labels of up to `longest` tokens over a small alphabet. Many share a beginning, and some are the beginning
// of another one.
Leaves random_labels(std::mt19937 & random, size_t n, size_t longest, uint32_t alphabet) {
    std::set<Tokens> labels;
    for (size_t tries = 0; labels.size() < n && tries < 20 * n; ++tries) {
        Tokens label(1 + random() % longest);
        for (int32_t & token : label) token = 310 + static_cast<int32_t>(random() % alphabet);
        labels.insert(label);
    }
    return {labels.begin(), labels.end()};
}

class RankOnRandomLabels : public testing::TestWithParam<uint32_t> {};

TEST_P(RankOnRandomLabels, FindsThoseWithTheHighestScores) {
    const ContextHandle context = make_context(), reference = make_context("token-by-token");
    std::mt19937 random{GetParam()};
    for (int round = 0; round < 6; ++round) {
        const Leaves labels = random_labels(random, 2 + random() % 150, 1 + random() % 5, 2 + random() % 12);
        const ChoicesHandle choices = prepare(context, labels), of_reference = prepare(reference, labels);
        for (const int32_t rule : {ELIZA_RANK_LEGAL, ELIZA_RANK_JOINT}) {
            Wish wish;
            wish.rule = rule;
            if (round % 2 == 1) wish.after = {320, 321, 322};
            const std::vector<double> scores = all_scores(reference, of_reference, labels.size(), wish);
            for (const uint32_t k : {1u, 5u, static_cast<uint32_t>(labels.size()) + 1}) {
                wish.k = k;
                const Ranked ranked = rank(open_after_prompt(context), choices, wish);
                ASSERT_EQ(ranked.places.size(), std::min<size_t>(k, labels.size()));
                expect_the_best(ranked, scores);
            }
        }
    }
}

TEST_P(RankOnRandomLabels, FindsTheGroupsWithTheHighestSums) {
    const ContextHandle context = make_context(), reference = make_context("token-by-token");
    std::mt19937 random{GetParam() + 100};
    for (int round = 0; round < 6; ++round) {
        const Leaves labels = random_labels(random, 10 + random() % 150, 2 + random() % 4, 2 + random() % 8);
        Wish wish;
        const size_t n_groups = 2 + random() % 8;
        for (const Tokens & label : labels) {
            const size_t of_first = static_cast<size_t>(label.front());
            wish.groups.push_back(static_cast<int32_t>((round % 2 == 0 ? of_first : random()) % n_groups));
        }
        const std::vector<double> scores = all_scores(reference, prepare(reference, labels), labels.size(), wish);
        for (const uint32_t k : {1u, 3u}) {
            wish.k = k;
            expect_the_best(rank(open_after_prompt(context), prepare(context, labels), wish),
                            sums_of_groups(scores, wish.groups));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RankOnRandomLabels, testing::Values(1, 2, 3));

// Every sequence of three tokens from an alphabet.
Leaves triples(int32_t n) {
    Leaves labels;
    for (int32_t a = 0; a < n; ++a) {
        for (int32_t b = 0; b < n; ++b) {
            for (int32_t c = 0; c < n; ++c) labels.push_back({310 + a, 340 + b, 370 + c});
        }
    }
    return labels;
}

TEST(Rank, ReadsFewPrefixesOfManyLabels) {
    const ContextHandle context = make_context();
    const Leaves labels = triples(16);
    const ChoicesHandle choices = prepare(context, labels);
    const Ranked few = rank(open_after_prompt(context), choices, {5}),
                 all = rank(open_after_prompt(context), choices, {5000});
    ASSERT_EQ(few.status, 0) << few.error;
    EXPECT_EQ(all.summary.rows_read, 1 + 16 + 16 * 16);
    EXPECT_LT(few.summary.rows_read, all.summary.rows_read / 3);
    EXPECT_LT(few.summary.forward_passes, all.summary.forward_passes);
    for (size_t i = 0; i < few.places.size(); ++i) EXPECT_NEAR(few.places[i].logprob, all.places[i].logprob, tolerance);
}

TEST(Rank, LeavesWithIdenticalTokensAreTheFirstOfThem) {
    const ContextHandle context = make_context();
    const StreamHandle stream = open_after_prompt(context);
    const Ranked ranked = rank(stream, prepare(context, {{310, 340}, {311}, {310, 340}}), {3});
    ASSERT_EQ(ranked.status, 0) << ranked.error;
    EXPECT_EQ(ranked.summary.proven, 1);
    ASSERT_EQ(ranked.summary.n_ranked, 2u);
    EXPECT_EQ(ranked.places[0].label + ranked.places[1].label, 0 + 1);
    EXPECT_NEAR(std::exp(ranked.places[0].logprob) + std::exp(ranked.places[1].logprob), 1.0, tolerance);
}

TEST(Rank, KeepsWhatItHasReadForTheNextRanking) {
    const ContextHandle context = make_context();
    const ChoicesHandle choices = prepare(context, triples(8));
    const StreamHandle stream = open_after_prompt(context);
    const Ranked first = rank(stream, choices, {3});
    EXPECT_GT(first.summary.forward_passes, 0);
    const Ranked again = rank(stream, choices, {3});
    EXPECT_EQ(again.summary.forward_passes, 0);
    EXPECT_EQ(again.summary.rows_read, 0);
    EXPECT_EQ(again.places.at(0).label, first.places.at(0).label);

    prefill(stream, {400});  // the rows belong to the shorter conversation
    EXPECT_GT(rank(stream, choices, {3}).summary.forward_passes, 0);
}

TEST(Rank, StopsAfterTheAllowedPasses) {
    const ContextHandle context = make_context();
    const Leaves labels = triples(12);
    const ChoicesHandle choices = prepare(context, labels);
    const StreamHandle stream = open_after_prompt(context);
    Wish wish{3};
    wish.max_passes = -1;
    const Ranked none = rank(stream, choices, wish);
    EXPECT_EQ(none.status, 0) << none.error;
    EXPECT_EQ(none.summary.forward_passes, 0);
    EXPECT_EQ(none.summary.proven, 0);
    EXPECT_TRUE(none.places.empty());
    EXPECT_NEAR(none.summary.rest, 1.0, tolerance);
    wish.max_passes = 1;
    EXPECT_EQ(rank(stream, choices, wish).summary.forward_passes, 1);
    wish.max_passes = 0;
    expect_the_best(rank(stream, choices, wish), all_scores(context, choices, labels.size(), wish));
}

TEST(Rank, GivesBoundsOfGroupsWithoutAPass) {
    const ContextHandle context = make_context();
    const Leaves labels = triples(6);
    const ChoicesHandle choices = prepare(context, labels);
    Wish wish{6};
    for (size_t i = 0; i < labels.size(); ++i) wish.groups.push_back(static_cast<int32_t>(i % 6));
    const std::vector<double> sums = sums_of_groups(all_scores(context, choices, labels.size(), wish), wish.groups);
    const StreamHandle stream = open_after_prompt(context);
    rank(stream, choices, {1});
    wish.max_passes = -1;
    const Ranked bounds = rank(stream, choices, wish);
    EXPECT_EQ(bounds.summary.proven, 0);
    ASSERT_EQ(bounds.places.size(), 6u) << bounds.error;
    for (const eliza_ranked_t & place : bounds.places) {
        EXPECT_LE(place.logprob, sums[static_cast<size_t>(place.label)] + tolerance);
        EXPECT_GE(place.most_logprob, sums[static_cast<size_t>(place.label)] - tolerance);
    }
}

TEST(Rank, LeavesTheConversationUnchanged) {
    const ContextHandle context = make_context();
    const StreamHandle ranked = open_after_prompt(context), other = open_after_prompt(context);
    rank(ranked, prepare(context, triples(6)), {4});
    EXPECT_EQ(push(ranked, 8).tokens, push(other, 8).tokens);
}

TEST(Rank, WorksWithARecurrentModel) {
    const ContextHandle context = make_context("auto", mtp_model_path({"qwen35", MtpHead::random}));
    const Leaves labels = triples(3);
    const ChoicesHandle choices = prepare(context, labels);
    Wish wish{4};
    expect_the_best(rank(open_after_prompt(context), choices, wish), all_scores(context, choices, labels.size(), wish));
}

TEST(Rank, GivesTheSameInOneCall) {
    const ContextHandle context = make_context();
    const std::vector<const char *> names = {"REPLY", "SEND_EMAIL", "SEND_MESSAGE", "IGNORE", "STOP"};
    ErrorText error;
    const ChoicesHandle labels(eliza_inference_prepare_labels(context.get(), names.data(), names.size(), error.out()),
                               eliza_inference_free_choices);
    eliza_rank_options_t options{};
    options.size = sizeof options;
    options.k = 5;
    eliza_ranked_t places[5];
    eliza_ranking_t summary{};
    ASSERT_EQ(eliza_inference_rank(context.get(), "The next action is", labels.get(), &options, places, 5, &summary,
                                   error.out()),
              0)
        << error.text();
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, "The next action is", true));
    const Ranked ranked = rank(stream, labels, {5});
    ASSERT_EQ(ranked.places.size(), 5u) << ranked.error;
    for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(places[i].label, ranked.places[i].label);
        EXPECT_NEAR(places[i].logprob, ranked.places[i].logprob, tolerance);
    }
    EXPECT_NEAR(summary.rest, 0.0, tolerance);
}

TEST(Rank, ErrorsNameTheArgument) {
    const ContextHandle context = make_context();
    const ChoicesHandle choices = prepare(context, triples(2));
    const StreamHandle stream = open_after_prompt(context);
    const auto error_of = [&](const Wish & wish) { return rank(stream, choices, wish).error; };
    Wish wish;
    wish.rule = 7;
    EXPECT_EQ(error_of(wish), "options.rule is 7, expected an eliza_rank_rule");
    wish = {};
    wish.max_passes = -2;
    EXPECT_EQ(error_of(wish), "options.max_passes is -2, expected -1 or more");
    wish = {};
    wish.groups = {0, 1};
    EXPECT_EQ(error_of(wish), "options.n_groups is 2, expected 8, the number of labels");
    wish.groups = {0, 0, 0, 0, 0, 0, 0, 8};
    EXPECT_EQ(error_of(wish), "options.groups[7] is 8, expected 0 or more and less than the number of labels");
    wish.groups.back() = 0;
    wish.rule = ELIZA_RANK_JOINT;
    EXPECT_EQ(error_of(wish), "options.groups: only ELIZA_RANK_LEGAL can rank groups");
    wish = {};
    wish.after = {-4};
    EXPECT_NE(error_of(wish).find("the prompt with the longest label: "), std::string::npos) << error_of(wish);
    EXPECT_EQ(rank(stream, choices, {}).status, 0);
}

}  // namespace
}  // namespace eliza::test
