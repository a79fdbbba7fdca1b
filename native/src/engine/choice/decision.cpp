#include "engine/choice/decision.h"

#include <algorithm>
#include <optional>
#include <string>

#include "error.h"
#include "json_input.h"

namespace eliza {

std::vector<EndingScores> decide(Sequence & sequence, const Options & options, const Decision & decision,
                                 const Progress & progress) {
    const llama_token * const prompt = decision.prompt;
    const size_t n_prompt = decision.n_prompt;
    const Decoder & decoder = sequence.decoder();
    sequence.cancelled().throw_if_set();
    decoder.check_prompt(0, prompt, n_prompt);
    for (size_t i = 0; i < decision.endings.size(); ++i) {
        require_fit(decoder, n_prompt, decision.endings[i], at("endings", i));
    }
    std::optional<StateMeans> means;
    if (!decision.layers.empty() || decision.endings.empty()) {
        means.emplace(decoder.model(), decision.layers, decision.ranges, n_prompt, decision.states_out,
                      decision.states_cap);
    }
    const auto on_state = [&](size_t i, int32_t layer, const float * values) { means->add(i, layer, values); };
    if (decision.endings.empty()) {
        sequence.read_states(prompt, n_prompt, std::min(decision.n_kept, means->first()), means->first(),
                             means->layers(), on_state);
        means->write();
        return {};
    }
    sequence.append_prompt(prompt, n_prompt);
    std::optional<Sequence::States> states;
    if (means) {
        states.emplace(sequence, means->first(), means->layers(), on_state);
    }
    if (progress) {
        sequence.decode(options.restricts_head() ? Rows::some : Rows::whole, progress);
    }
    std::vector<EndingScores> scores = score_endings(sequence, options, decision.endings, decision.wanted);
    if (states) {
        states->complete();  // one label alone needs no pass
        means->write();
    }
    return scores;
}

}  // namespace eliza
