#include "constraint/text_choices_constraint.h"
#include "fuzz_target.h"
#include "json_input.h"

// Every path through the labels ends on a label.
void eliza::fuzz::run(std::string_view input) {
    const std::vector<std::string> texts = parse_strings(input, "choices");
    TextChoicesConstraint span(std::make_shared<const TextChoices>(small_vocabulary(), "", texts), {});
    for (size_t step = 0; span.active(); ++step) {
        const TokenSpan allowed = span.allowed();
        require(!allowed.empty());
        span.accept(allowed[static_cast<uint32_t>((step * 7 + input.size()) % allowed.size)]);
    }
    require(span.leaf_name() != nullptr);
}
