// Scores several questions about one prompt, without generating tokens. Each question consists of tokens after the
// prompt (an ending) and of labels after these tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "engine/choice/prepared_choices.h"
#include "engine/pass/sequence.h"

namespace eliza {

struct Ending {
    std::vector<llama_token> tokens;  // if empty, the labels follow the prompt directly
    std::shared_ptr<const PreparedChoices> choices;

    const TokenTrie & trie() const { return choices->trie()->trie; }
};

// The scores to compute. `joint` and `option_mass` need the logits of the whole vocabulary.
struct WantedScores {
    bool legal, joint, option_mass;
};

struct EndingScores {
    std::vector<double> legal, joint;  // log-probability of every leaf, in payload order; see leaf_scores.h
    double option_mass = 0.0;          // probability that the next token is the first token of a label
};

// Throws an Error unless the ending and its labels are of the decoder's model and fit after a prompt of n_before
// tokens. `name` names the ending.
void require_fit(const Decoder & decoder, size_t n_before, const Ending & ending, const std::string & name);

// Computes the scores of every ending's labels. The tokens of all endings are decoded together after the tokens of the
// sequence. The sequence is restored afterwards. Throws an Error.
std::vector<EndingScores> score_endings(Sequence & sequence, const Options & options,
                                        const std::vector<Ending> & endings, WantedScores wanted);

}  // namespace eliza
