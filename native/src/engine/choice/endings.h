// Questions behind one prompt: each an ending of its own with choices behind it, none of which is generated.
#pragma once

#include <memory>
#include <vector>

#include "eliza/eliza_inference.h"
#include "engine/choice/prepared_choices.h"
#include "engine/options.h"
#include "engine/pass/sequence.h"

namespace eliza {

struct Ending {
    std::vector<llama_token> tokens;  // may be none: the choices come right behind the prompt
    std::shared_ptr<const PreparedChoices> choices;

    const TokenTrie & trie() const { return choices->trie()->trie; }
};

// Which scores are asked for. All but the first need the logits of the whole vocabulary.
struct WantedScores {
    bool legal, joint, option_mass;
};

struct EndingScores {
    std::vector<double> legal, joint;  // of every leaf, in payload order; see leaf_scores.h
    double option_mass = 0.0;          // of the next token's probability, the choices' first tokens' share
};

// The scores of every ending's choices. Their tokens go through the model together, behind the sequence, which is
// as it was afterwards. Counts into `stats`. Throws Error.
std::vector<EndingScores> score_endings(Sequence & sequence, const Options & options, eliza_llm_stream_stats_t & stats,
                                        const std::vector<Ending> & endings, WantedScores wanted);

}  // namespace eliza
