package cli

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/explain"
)

// portGroups are ports by what is said of them.
type portGroups struct {
	of    map[string][]explain.PortVerdict
	order []string // of the keys of of, as they came first
}

// add puts ports into a group. Ports that follow those before become one range with them: what tells them apart is said elsewhere.
func (g *portGroups) add(text string, p explain.PortVerdict) {
	list := g.of[text]
	if n := len(list); n > 0 && p.From > 0 && list[n-1].Protocol == p.Protocol && list[n-1].To == p.From-1 {
		list[n-1].To = p.To
		return
	}
	if list == nil {
		g.order = append(g.order, text)
	}
	if g.of == nil {
		g.of = map[string][]explain.PortVerdict{}
	}
	g.of[text] = append(list, p)
}

func rangeTexts(list []explain.PortVerdict) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, rangeText(&p))
	}
	return strings.Join(texts, ", ")
}

func rangeText(p *explain.PortVerdict) string {
	switch {
	case p.ICMPType != nil:
		return p.Protocol + " echo request" // no other type is asked about without a port
	case p.From == 0:
		return p.Protocol
	case p.From == 1 && p.To == 65535:
		return p.Protocol + " any port"
	case p.From == p.To:
		return fmt.Sprintf("%s %d", p.Protocol, p.From)
	}
	return fmt.Sprintf("%s %d-%d", p.Protocol, p.From, p.To)
}
