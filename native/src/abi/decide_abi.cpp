// Scores of labels after several endings of a conversation or of a prompt, and hidden states of the prompt.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "abi/boundary.h"
#include "abi/choices_handles.h"
#include "json_input.h"

using namespace eliza;

namespace {

constexpr uint64_t max_endings = 65536;

// A caller's endings, and the arrays for their scores.
struct Endings {
    std::vector<Ending> endings;
    size_t n_leaves = 0;
    double *legal, *joint, *option_mass;

    Endings(const eliza_ending_t * given, uint64_t n, double * legal_out, double * joint_out, double * option_mass_out)
        : legal(legal_out), joint(joint_out), option_mass(option_mass_out) {
        require(given != nullptr || n == 0, "endings is NULL");
        if (n > max_endings) {
            throw invalid_argument("expected at most " + std::to_string(max_endings) + " endings, got " +
                                   std::to_string(n));
        }
        endings.reserve(n);
        for (size_t i = 0; i < n; ++i) {
            endings.push_back(read_ending(given[i], at("endings", i)));
            n_leaves += endings.back().trie().n_leaves();
        }
        if (n_leaves > INT32_MAX) {
            throw invalid_argument("expected at most " + std::to_string(INT32_MAX) + " leaves in all endings, got " +
                                   std::to_string(n_leaves));
        }
    }

    WantedScores wanted() const { return {legal != nullptr, joint != nullptr, option_mass != nullptr}; }

    int write(const std::vector<EndingScores> & all) const {
        double *next_legal = legal, *next_joint = joint, *next_mass = option_mass;
        for (const EndingScores & scores : all) {
            next_legal = std::copy(scores.legal.begin(), scores.legal.end(), next_legal);
            next_joint = std::copy(scores.joint.begin(), scores.joint.end(), next_joint);
            if (next_mass != nullptr) {
                *next_mass++ = scores.option_mass;
            }
        }
        return static_cast<int>(n_leaves);
    }
};

Decision read_decision(const eliza_decide_t & given, Endings & endings) {
    require(given.tokens != nullptr && given.n_tokens > 0, "the prompt has no tokens");
    require(given.n_endings > 0 || given.n_layers > 0, "expected endings or layers, got none");
    require(given.layers != nullptr || given.n_layers == 0, "layers is NULL");
    require(given.ranges != nullptr || given.n_ranges == 0, "ranges is NULL");
    require(given.states_out != nullptr || given.states_cap == 0, "states_out is NULL");
    require(given.n_layers <= given.states_cap && given.n_ranges <= given.states_cap,
            "states_cap: expected room for each layer and range");
    require(given.n_layers <= INT32_MAX && given.n_ranges <= INT32_MAX, "too many layers or ranges");
    Decision decision;
    decision.prompt = given.tokens;
    decision.n_prompt = given.n_tokens;
    decision.wanted = endings.wanted();
    decision.endings = std::move(endings.endings);
    decision.layers.assign(given.layers, given.layers + given.n_layers);
    for (size_t i = 0; i < given.n_ranges; ++i) {
        decision.ranges.push_back({given.ranges[2 * i], given.ranges[2 * i + 1]});
    }
    decision.n_kept = given.n_kept;
    decision.states_out = given.states_out;
    decision.states_cap = given.states_cap;
    return decision;
}

void check_size(const eliza_decide_t * request) {
    require(request != nullptr, "request is NULL");
    if (request->size != sizeof *request) {
        throw invalid_argument("request.size: expected " + std::to_string(sizeof *request) + ", got " +
                               std::to_string(request->size));
    }
}

}  // namespace

int eliza_inference_llm_score_endings_supported(void) { return 1; }

int eliza_inference_llm_stream_score_endings(EliLlmStream * stream, const eliza_ending_t * endings, size_t n_endings,
                                             double * legal_out, double * joint_out, double * option_mass_out,
                                             size_t cap, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(endings != nullptr && n_endings > 0, "expected one ending or more, got none");
        const Endings read(endings, n_endings, legal_out, joint_out, option_mass_out);
        if (cap == 0) {
            return static_cast<int>(read.n_leaves);
        }
        require_room("cap", read.n_leaves, "leaves", cap);
        return read.write(s.score_endings(read.endings, read.wanted()));
    });
}

int32_t eliza_inference_decide(EliInferenceContext * ctx, eliza_decide_t * request, char ** err) {
    return with_context(ctx, err, [&](InferenceContext & context) {
        check_size(request);
        request->forward_passes = request->tokens_cached = 0;
        Endings endings(request->endings, request->n_endings, request->legal_out, request->joint_out,
                        request->option_mass_out);
        require_room("cap", endings.n_leaves, "leaves", request->cap);
        const InferenceContext::OpenRequest config = read_config(request->config);
        return endings.write(context.decide({read_decision(*request, endings), config.kv_types, config.stream.slot,
                                             &request->cancelled, &request->forward_passes, &request->tokens_cached}));
    });
}

int eliza_inference_cancel_decide(EliInferenceContext * ctx, eliza_decide_t * request) {
    return with_context(ctx, nullptr, [&](InferenceContext & context) {
        check_size(request);
        context.cancel_decision(request->cancelled);
    });
}
