#include "constraint/constraint.h"

namespace eliza {

void Constraint::accept(Token token) {
    if (!active()) {
        return;
    }
    if (!walk(token)) {
        end_ = is_leaf() ? End::leaf : End::departed;
        return;
    }
    ++n_accepted_;
    if (!can_go_on()) {
        end_ = End::leaf;
    } else if (n_accepted_ >= span_limit_) {
        end_ = is_leaf() ? End::leaf : End::span_limit;
    }
}

}  // namespace eliza
