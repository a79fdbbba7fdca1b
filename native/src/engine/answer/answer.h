// A structured answer of one stream: fixed text is appended without sampling, values are generated under a constraint.
//
// Fixed text is tokenized together with the fixed text around it. So the tokens of the last fixed text can still change
// when the next span adds text, and the text is kept until then. Tokenizing it again costs no pass, because tokens are
// decoded only when a decision needs logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constraint/text_constraint.h"
#include "engine/answer/span_spec.h"
#include "engine/base/options.h"
#include "engine/choice/choice.h"
#include "engine/pass/sequence.h"
#include "sampling/token_selector.h"

namespace eliza {

class Answer {
public:
    // Spans of labels use `choice`. Adds to `counts`.
    Answer(Sequence & sequence, Choice & choice, const Options & options)
        : decoder_(sequence.decoder()),
          sequence_(sequence),
          choice_(choice),
          options_(options),
          counts_(sequence.counts()) {}

    // The answer begins here, after the prompt. `from_start`: the conversation was started again.
    void begin_after_prompt(bool from_start);

    // Ends the fixed text: its tokens do not change any more.
    void settle() { fixed_.reset(); }

    // Writes the next span. `sampling` has the stream's settings; the span may replace some of them. After an error
    // `result` holds the part that was written. The stream then continues after this part, or, if there is none, as if
    // the span had not been requested.
    void fill(const SpanSpec & spec, SamplingParams sampling, FillResult & result);

    // Writes a value under a constraint at the end of the sequence.
    void write_value(const SpanSpec & spec, TextConstraint & constraint, TokenSelector & selector, FillResult & result);

    // Fills in all tokens of the answer so far.
    void tell(FillResult & result) const;

private:
    // The text of the answer from token `begin` to the end, whose tokenization may still change.
    struct FixedText {
        size_t begin;
        std::string text;
    };

    FixedText fixed_text_before(const SpanSpec & spec) const;
    FixedText text_after_taking_back(size_t n_bytes, const std::string & before) const;
    void append_fixed_text(const FixedText & fixed);
    void shorten_fixed_text();
    void require_room(size_t n_tokens) const;
    std::string take_off_whole_characters(std::vector<llama_token> & tokens) const;
    std::shared_ptr<const CachedTrie> trie_of_labels(const SpanSpec & spec, const std::string & before) const;
    void commit(llama_token token, TokenSelector & selector);
    void fill_choice(const SpanSpec & spec, const FixedText & fixed, TokenSelector & selector, FillResult & result);
    void fill_value(const SpanSpec & spec, const FixedText & fixed, TokenSelector & selector, FillResult & result);
    // Returns the number of appended tokens, or nothing if the tokenizer has no tokens for the text.
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
    StreamCounts & counts_;

    std::optional<FixedText> fixed_;
    size_t begin_ = 0;       // the answer's first token
    uint32_t n_filled_ = 0;  // spans since the start of the conversation
};

}  // namespace eliza
