package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
)

// The documents have no word that the glossary avoids in sentences either. Code in them is not prose.
func TestDocumentsHaveNoWordThatTheGlossaryAvoids(t *testing.T) {
	avoided := avoidedInSentences(t)
	for name, text := range documents(t) {
		if name == "docs/glossary.md" {
			continue // it lists them
		}
		text = codeSpan.ReplaceAllString(fence.ReplaceAllString(text, ""), "x")
		for _, paragraph := range strings.Split(text, "\n\n") {
			paragraph = strings.Join(strings.Fields(paragraph), " ")
			for _, word := range avoided {
				if found := word.FindString(". " + paragraph); found != "" {
					t.Errorf("%s: %q in %q; see the glossary", name, strings.TrimSpace(found), shortened(paragraph, found))
				}
			}
		}
	}
}
