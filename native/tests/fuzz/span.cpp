#include "engine/answer/span_spec.h"

#include "constraint/text_constraints.h"
#include "fuzz_target.h"

// From every reachable state, a value can be completed.
void eliza::fuzz::run(std::string_view input) {
    const SpanSpec spec = parse_span(input);
    if (spec.kind != SpanSpec::Kind::value) return;
    static TextConstraints constraints(small_vocabulary());
    const auto value = constraints.value(spec.value, {spec.before, spec.after})->begin();
    for (size_t step = 0; step < 20 && !value->is_over(); ++step) {
        const std::vector<Token> legal = value->mask()->tokens.tokens();
        require(!legal.empty());
        const Token token = legal[(step * 31 + input.size()) % legal.size()];
        require(value->allows(token));
        value->accept(token);
    }
    const std::string end = value->shortest_end();
    require(value->may_end() || !end.empty());
}
