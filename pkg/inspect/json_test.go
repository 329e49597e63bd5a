package inspect_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/inspect"
)

// The JSON forms are what -o json prints and others' programs read: names and their order stay.
func TestJSONOfStatusAndRules(t *testing.T) {
	at := time.Date(2026, 11, 22, 4, 5, 6, 0, time.UTC)
	full := inspect.StatusReport{
		NoAgent: true, InSync: true, Ready: true, NotReady: []string{"x"}, Problems: 6, Kinds: []inspect.KindRow{{Kind: "Pod"}},
		Attempts:       inspect.Attempts{Applied: at, TookSeconds: 1.5, Error: "e", Held: "h", Applies: 1, Failed: 2},
		Agent:          inspect.Agent{Node: "n", Dataplane: "bpf", Version: "v", Started: at},
		EndpointCounts: inspect.EndpointCounts{Endpoints: 3, Enforced: 4, Closed: 5},
	}
	rule := inspect.RuleRow{
		Direction: "ingress", Index: 1, Rule: "r", Reason: "why", Tier: "t", Action: "Allow", Match: "m", NeverReached: true, ID: 2, Packets: 3, Bytes: 4,
		Object: inspect.Object{APIVersion: "v1", Kind: "K", Namespace: "ns", Name: "n"},
	}
	const none = "0001-01-01T00:00:00Z"
	for want, v := range map[string]any{
		`{"noAgent":true,"inSync":true,"ready":true,"notReady":["x"],"applied":"2026-11-22T04:05:06Z","tookSeconds":1.5,"error":"e","held":"h",` +
			`"applies":1,"failed":2,"node":"n","dataplane":"bpf","version":"v","started":"2026-11-22T04:05:06Z","endpoints":3,"enforced":4,"closed":5,` +
			`"problems":6,"kinds":[{"kind":"Pod","state":"","required":false,"listed":false,"since":"` + none + `","objects":0}]}`: full,
		`{"inSync":false,"ready":false,"applied":"` + none + `","tookSeconds":0,"applies":0,"failed":0,"node":"","dataplane":"","version":"",` +
			`"started":"` + none + `","endpoints":0,"enforced":0,"closed":0,"problems":0,"kinds":null}`: inspect.StatusReport{},
		`{"direction":"ingress","index":1,"rule":"r","reason":"why","apiVersion":"v1","kind":"K","namespace":"ns","name":"n","tier":"t",` +
			`"action":"Allow","match":"m","neverReached":true,"id":2,"packets":3,"bytes":4}`: rule,
		`{"direction":"","index":0,"rule":"","reason":"","action":"","match":"","id":0,"packets":0,"bytes":0}`: inspect.RuleRow{},
	} {
		got, err := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("error %v\n got %s\nwant %s", err, got, want)
		}
	}
}
