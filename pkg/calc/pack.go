package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// packedRules are rules in a tenth of the memory. They are unpacked when the rules of this node are built of them. Very many
// policies say the same of other pods, so they share the text, which has everything but the selectors.
type packedRules struct {
	text  *ruleText             // nil: no rules
	first *selector.Selector    // that they mention; nil: none
	more  *[]*selector.Selector // the others, in the order of their mention; nil: none
}

// size is how many bytes the text has.
func (r packedRules) size() int {
	if r.text == nil {
		return 0
	}
	return len(r.text.text)
}

// namesPorts reports whether a rule refers to ports by name.
func (r packedRules) namesPorts() bool { return r.text != nil && r.text.namesPorts }

// boxed is a pointer to rules; nil: none.
func boxed(r packedRules) *packedRules {
	if r.text == nil {
		return nil
	}
	return &r
}

// unboxed is the opposite of boxed.
func (r *packedRules) unboxed() packedRules {
	if r == nil {
		return packedRules{}
	}
	return *r
}

// ruleText is a text that packed rules share.
type ruleText struct {
	text       string
	users      int32
	namesPorts bool // a rule refers to ports by name
}

// ruleTexts has the texts of all packed rules.
type ruleTexts struct {
	keyset.Set[string, ruleText]
	scratch []byte // of pack
}

func newRuleTexts() ruleTexts {
	return ruleTexts{Set: keyset.New(func(t *ruleText) string { return t.text })}
}

// hold returns a text for one more user, given what is known of it.
func (s *ruleTexts) hold(text string, namesPorts bool) *ruleText {
	t := s.Get(text)
	if t == nil {
		t = &ruleText{text: text, namesPorts: namesPorts}
		s.Put(t)
	}
	t.users++
	return t
}

// replace drops the text of rules that others take the place of, and returns those.
func (s *ruleTexts) replace(was, now packedRules) packedRules {
	if was.text != nil {
		if was.text.users--; was.text.users == 0 {
			s.Delete(was.text.text)
		}
	}
	return now
}

// pack packs rules. Empty lists come back as nil ones.
func pack(rules [2][]model.Rule, intern func(*selector.Selector) *selector.Selector, texts *ruleTexts) packedRules {
	if len(rules[0])+len(rules[1]) == 0 {
		return packedRules{}
	}
	const most = 1 << 20 // of scratch
	text, selectors := model.PackRules(texts.scratch[:0], rules, intern)
	packed := packedRules{text: texts.hold(string(text), slices.ContainsFunc(rules[:], namePorts))}
	if cap(text) <= most {
		texts.scratch = text
	}
	if len(selectors) > 0 {
		packed.first = selectors[0]
	}
	if len(selectors) > 1 {
		more := slices.Clone(selectors[1:])
		packed.more = &more
	}
	return packed
}

// lists unpacks.
func (r packedRules) lists() [2][]model.Rule {
	switch {
	case r.text == nil:
		return [2][]model.Rule{}
	case r.more == nil:
		return model.UnpackRules(r.text.text, []*selector.Selector{r.first})
	}
	return model.UnpackRules(r.text.text, append([]*selector.Selector{r.first}, *r.more...))
}
