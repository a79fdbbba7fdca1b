// Ranking labels.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "abi/boundary.h"
#include "abi/choices_handles.h"
#include "abi/one_call.h"
#include "json_input.h"

using namespace eliza;

namespace {

struct RankRequest {
    LabelRule rule = LabelRule::legal;
    RankWish wish;
};

RankRequest read_options(const eliza_rank_options_t * given, size_t n_labels, size_t cap) {
    const eliza_rank_options_t options = read_options_struct(given);
    if (options.rule != ELIZA_RANK_LEGAL && options.rule != ELIZA_RANK_JOINT) {
        throw invalid_argument("options.rule is " + std::to_string(options.rule) + ", expected an eliza_rank_rule");
    }
    if (options.max_passes < -1) {
        throw invalid_argument("options.max_passes is " + std::to_string(options.max_passes) + ", expected -1 or more");
    }
    RankRequest request;
    request.rule = options.rule == ELIZA_RANK_JOINT ? LabelRule::joint : LabelRule::legal;
    request.wish.n = std::max(1u, options.k);
    if (options.max_passes != 0) {
        request.wish.max_passes = std::max(0, options.max_passes);
    }
    if (options.groups != nullptr) {
        require(request.rule == LabelRule::legal, "options.groups: only ELIZA_RANK_LEGAL can rank groups");
        if (options.n_groups != n_labels) {
            throw invalid_argument("options.n_groups is " + std::to_string(options.n_groups) + ", expected " +
                                   std::to_string(n_labels) + ", the number of labels");
        }
        request.wish.groups.assign(options.groups, options.groups + n_labels);
        for (size_t i = 0; i < n_labels; ++i) {
            const int32_t group = request.wish.groups[i];
            if (group < 0 || static_cast<size_t>(group) >= n_labels) {
                throw invalid_argument("options." + at("groups", i) + " is " + std::to_string(group) +
                                       ", expected 0 or more and less than the number of labels");
            }
        }
    }
    require_room("cap", std::min(request.wish.n, n_labels), "entries", cap);
    return request;
}

int write(const Ranking & ranking, eliza_ranked_t * ranked_out, eliza_ranking_t * ranking_out) {
    std::transform(ranking.best.begin(), ranking.best.end(), ranked_out, [](const Ranking::Entry & entry) {
        return eliza_ranked_t{entry.label, entry.logprob, entry.most_logprob};
    });
    *ranking_out = {static_cast<uint32_t>(ranking.best.size()), ranking.proven ? 1 : 0,
                    static_cast<int32_t>(ranking.passes), static_cast<int32_t>(ranking.reads), ranking.rest};
    return ELIZA_OK;
}

int rank(Stream & stream, const Ending & after, const eliza_rank_options_t * options, eliza_ranked_t * ranked_out,
         size_t cap, eliza_ranking_t * ranking_out) {
    const RankRequest request = read_options(options, after.trie().n_leaves(), cap);
    return write(stream.rank(after, request.rule, request.wish), ranked_out, ranking_out);
}

void require_outputs(const eliza_ranked_t * ranked_out, const eliza_ranking_t * ranking_out) {
    require(ranked_out != nullptr, "ranked_out is NULL");
    require(ranking_out != nullptr, "ranking_out is NULL");
}

}  // namespace

int eliza_inference_llm_rank_supported(void) { return 1; }

int32_t eliza_inference_llm_stream_rank(EliLlmStream * stream, const eliza_ending_t * after,
                                        const eliza_rank_options_t * options, eliza_ranked_t * ranked_out, uint64_t cap,
                                        eliza_ranking_t * ranking_out, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(after != nullptr, "after is NULL");
        require_outputs(ranked_out, ranking_out);
        return rank(s, read_ending(*after, "after"), options, ranked_out, cap, ranking_out);
    });
}

int32_t eliza_inference_llm_stream_rank_texts(EliLlmStream * stream, const char * json_array_of_strings, uint64_t len,
                                              const eliza_rank_options_t * options, eliza_ranked_t * ranked_out,
                                              uint64_t cap, eliza_ranking_t * ranking_out, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require_outputs(ranked_out, ranking_out);
        const auto labels = s.parse_texts(require_text(json_array_of_strings, len, "json_array_of_strings"));
        const RankRequest request = read_options(options, labels->texts().trie().n_leaves(), cap);
        require(request.rule == LabelRule::legal, "options.rule: labels in any tokens need ELIZA_RANK_LEGAL");
        return write(s.rank_texts(labels, request.wish), ranked_out, ranking_out);
    });
}

int32_t eliza_inference_rank(EliInferenceContext * ctx, const char * prompt, EliChoices * labels,
                             const eliza_rank_options_t * options, eliza_ranked_t * ranked_out, uint64_t cap,
                             eliza_ranking_t * ranking_out, char ** err) {
    return guarded(err, [&] {
        require_outputs(ranked_out, ranking_out);
        const eliza_rank_options_t read = read_options_struct(options);
        InferenceContext::OpenRequest request;
        request.stream.slot.cache_key = read.cache_key != nullptr ? read.cache_key : "";
        return after_prompt(ctx, prompt, require_choices(labels), read.plain_prompt != 0, std::move(request), err,
                            [&](Stream & stream, size_t, const std::shared_ptr<const PreparedChoices> & after) {
                                return rank(stream, {{}, after}, options, ranked_out, cap, ranking_out);
                            });
    });
}
