// A structured answer of one stream: known text appended without sampling, values under a constraint.
//
// Known text is cut into tokens together with what is known around it, so a stretch that has been cut is kept as
// text until nothing can change its end: the next span may cut it anew. That costs no pass, since tokens are
// decoded when a decision needs logits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "constraint/text_constraint.h"
#include "eliza/eliza_inference.h"
#include "engine/answer/span_spec.h"
#include "engine/choice/choice.h"
#include "engine/options.h"
#include "engine/pass/sequence.h"
#include "sampling/token_selector.h"

namespace eliza {

class Answer {
public:
    // Spans of choices go through `choice`. Counts into `stats`.
    Answer(Sequence & sequence, Choice & choice, const Options & options, eliza_llm_stream_stats_t & stats)
        : decoder_(sequence.decoder()), sequence_(sequence), choice_(choice), options_(options), stats_(stats) {}

    // The prompt ends here. `anew`: and so did the conversation.
    void begin_behind_prompt(bool anew);

    // What comes next is no more part of the known text.
    void settle() { known_.reset(); }

    // Writes the next span. `sampling` is the stream's, of which the span may change some. On failure `result`
    // holds what there is of it, and the stream can go on: behind the value's text so far, or if there is none, as
    // if the span had not been asked for.
    void fill(const SpanSpec & spec, SamplingParams sampling, FillResult & result);

    // Writes a value under a constraint, behind what the sequence holds.
    void write_value(const SpanSpec & spec, TextConstraint & constraint, TokenSelector & selector, FillResult & result);

    // What there is of the answer's tokens, of which a result tells beside its own.
    void tell(FillResult & result) const;

private:
    // Text of the answer from token `begin` to the end whose cut into tokens may still change, when what follows
    // is known.
    struct KnownText {
        size_t begin;
        std::string text;
    };

    KnownText known_text_before(const SpanSpec & spec) const;
    void append_known_text(const KnownText & known);
    void shorten_known_text();
    void require_room(size_t n_tokens) const;
    std::string take_off_whole_characters(std::vector<llama_token> & tokens) const;
    void commit(llama_token token, TokenSelector & selector);
    void fill_choice(const SpanSpec & spec, const KnownText & known, TokenSelector & selector, FillResult & result);
    void fill_value(const SpanSpec & spec, const KnownText & known, TokenSelector & selector, FillResult & result);
    // Returns how many tokens it appended; nothing if the tokenizer cannot spell the text.
    std::optional<size_t> append_forced(const std::string & forced, TextConstraint & constraint,
                                        TokenSelector & selector, FillResult & result);
    void take(llama_token token, TextConstraint & constraint, TokenSelector & selector, FillResult & result);
    llama_token choose_of_few(TokenSpan legal, TokenSelector & selector);
    std::optional<llama_token> choose_in_text(TextConstraint & constraint, const SpanSpec & spec,
                                              TokenSelector & selector, FillResult & result);

    Decoder & decoder_;
    Sequence & sequence_;
    Choice & choice_;
    const Options & options_;
    eliza_llm_stream_stats_t & stats_;

    std::optional<KnownText> known_;
    size_t begin_ = 0;       // the answer's first token
    uint32_t n_filled_ = 0;  // spans since the conversation began
};

}  // namespace eliza
