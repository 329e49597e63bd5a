package flows

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"
)

// The JSON form is read by programs of others: names and their order stay.
func TestJSONOfARecord(t *testing.T) {
	full, plain := record(), &Record{}
	full.Time = time.Date(2026, 11, 22, 4, 5, 6, 0, time.UTC)
	full.ICMP, full.Note, full.Suppressed = &ICMP{Type: 8, Code: 1}, "revoked", 3
	full.Trace = &Trace{Logged: []string{"a"}, Passed: []string{"b"}}
	plain.Src = netip.MustParseAddrPort("[fd00::1]:0")
	for r, want := range map[*Record]string{
		full: `{"time":"2026-11-22T04:05:06Z","endpoint":"shop/db","interface":"cali1","direction":"ingress","verdict":"deny",` +
			`"peer":{"kind":"pod","name":"web/front-7"},"src":"10.0.0.1:4242","dst":"10.0.0.2:81","protocol":"tcp",` +
			`"icmp":{"type":8,"code":1},"policy":"default/knp/shop/db","rule":"default/knp/shop/db#end-of-tier",` +
			`"trace":{"logged":["a"],"passed":["b"]},"note":"revoked","suppressed":3}`,
		plain: `{"time":"0001-01-01T00:00:00Z","endpoint":"","direction":"","verdict":"","src":"[fd00::1]:0","dst":"","protocol":"","rule":""}`,
	} {
		got, err := json.Marshal(r)
		if err != nil || string(got) != want {
			t.Errorf("error %v\n got %s\nwant %s", err, got, want)
		}
		var back Record
		if err := json.Unmarshal(got, &back); err != nil || back.Src != r.Src || back.Rule != r.Rule {
			t.Errorf("read back %+v (%v)", back, err)
		}
	}
}
