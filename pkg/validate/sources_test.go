package validate_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	. "github.com/margay-project/margay/pkg/validate"
)

// annotated is a pod of the node n1 with the annotation of further sources.
func annotated(annotation string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {cni.projectcalico.org/allowedSourcePrefixes: %q}}\n"+
		"spec: {nodeName: n1}\nstatus: {podIP: 10.0.0.1}\n", annotation)
}

func TestFurtherSourcesOfPods(t *testing.T) {
	on := Pods{SourceSpoofing: true}
	var many, first []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprintf("203.0.113.%d/32", i)))
		first = append(first, fmt.Sprintf("203.0.113.%d/32", i))
	}
	tests := map[string]struct {
		pods       Pods
		annotation string
		want       []string
		problem    string // part of the only one; empty: none
	}{
		"both families":         {on, `["203.0.113.0/24", "2001:db8::/64", "0.0.0.0/0"]`, []string{"203.0.113.0/24", "2001:db8::/64", "0.0.0.0/0"}, ""},
		"twice":                 {on, `["203.0.113.0/24", "203.0.113.0/24"]`, []string{"203.0.113.0/24"}, ""},
		"none":                  {on, `[]`, nil, ""},
		"null":                  {on, `null`, nil, ""},
		"empty":                 {on, ``, nil, ""},
		"disabled":              {Pods{}, `["203.0.113.0/24"]`, nil, "ignored, so packets from these addresses are dropped as spoofed: workload-source-spoofing is Disabled"},
		"disabled and empty":    {Pods{}, `[]`, nil, ""},
		"of another node":       {Pods{Node: "n2"}, `["203.0.113.0/24"]`, nil, ""},
		"bits beyond the mask":  {on, `["203.0.113.9/24"]`, []string{"203.0.113.0/24"}, `"203.0.113.9/24" has bits beyond its mask; read as "203.0.113.0/24"`},
		"no JSON":               {on, `203.0.113.0/24`, nil, `"203.0.113.0/24" is not a list of CIDRs in JSON; ignored`},
		"no list":               {on, `{"a": 1}`, nil, `"{\"a\": 1}" is not a list of CIDRs in JSON; ignored`},
		"an address":            {on, `["203.0.113.1", "203.0.113.2/32"]`, []string{"203.0.113.2/32"}, `"203.0.113.1" is not a CIDR; ignored`},
		"mapped":                {on, `["::ffff:203.0.113.0/120"]`, nil, "write it as IPv4; ignored"},
		"loopback":              {on, `["127.0.0.0/16", "2001:db8::/64"]`, []string{"2001:db8::/64"}, `"127.0.0.0/16" has loopback addresses only`},
		"link-local":            {on, `["fe80::/64"]`, nil, "link-local addresses only"},
		"multicast":             {on, `["ff05::/16"]`, nil, "multicast addresses only"},
		"around what is barred": {on, `["224.0.0.0/3", "::/0"]`, []string{"224.0.0.0/3", "::/0"}, ""},
		"too many":              {on, "[" + strings.Join(many, ",") + "]", first[:16], `may list 16 prefixes; those from "203.0.113.16/32" on are ignored`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			docs := kinds.Table(tt.pods).Parse("dir/a.yaml", []byte(annotated(tt.annotation)))
			if len(docs) != 1 || !docs[0].OK {
				t.Fatalf("%+v", docs)
			}
			ep := docs[0].Updates[0].(model.EndpointUpdate).Endpoint
			if ep == nil || !slices.Equal(ep.Addrs, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) {
				t.Fatalf("the endpoint itself is %+v", ep)
			}
			var got []string
			for _, p := range ep.Sources {
				got = append(got, p.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("further sources %v, want %v", got, tt.want)
			}
			switch ps := docs[0].Problems; {
			case tt.problem == "" && len(ps) > 0:
				t.Errorf("problems %v", ps)
			case tt.problem != "" && (len(ps) != 1 || ps[0].Severity != Warning || !strings.Contains(ps[0].Reason, tt.problem) ||
				!strings.Contains(ps[0].Field, "allowedSourcePrefixes")):
				t.Errorf("problems %v, want one that says %q", ps, tt.problem)
			}
		})
	}
}

// The report of an annotation with many bad entries is as bounded as any other.
func TestAHugeListOfSourcesIsOneShortReport(t *testing.T) {
	text := annotated("[" + strings.Repeat(`"x",`, 50000) + `"x"]`)
	docs := kinds.Table(Pods{SourceSpoofing: true}).Parse("dir/a.yaml", []byte(text))
	if n := len(docs[0].Problems); !docs[0].OK || n > 25 {
		t.Errorf("ok %v, %d problems", docs[0].OK, n)
	}
}

func TestNeverASource(t *testing.T) {
	for text, never := range map[string]bool{"0.0.0.0/0": false, "0.0.0.0/8": true, "0.1.0.0/16": true, "126.0.0.0/7": false, "127.0.0.1/32": true,
		"169.254.0.0/16": true, "169.254.0.0/15": false, "224.0.0.0/4": true, "240.0.0.0/4": true, "255.255.255.255/32": true, "10.0.0.0/8": false,
		"::/0": false, "::/128": true, "::1/128": true, "::/96": true, "::/95": false, "fe80::/10": true, "fec0::/10": false, "ff00::/8": true, "2001:db8::/32": false} {
		if got := model.NeverASource(netip.MustParsePrefix(text)); (got != "") != never {
			t.Errorf("%s: %q", text, got)
		}
	}
}
