package flows

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func record(change ...func(*Record)) *Record {
	r := &Record{
		Time: time.Date(2026, 11, 22, 4, 5, 6, 789e6, time.UTC), Endpoint: "shop/db", Interface: "cali1", Direction: Ingress, Verdict: Deny,
		Peer:     &Peer{Kind: PeerPod, Name: "web/front-7"},
		Packet:   Packet{Src: netip.MustParseAddrPort("10.0.0.1:4242"), Dst: netip.MustParseAddrPort("10.0.0.2:81"), Protocol: "tcp"},
		Decision: Decision{Policy: "default/knp/shop/db", Rule: "default/knp/shop/db#end-of-tier"},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestText(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	tests := map[string]func(*Record){
		"2026-11-22T06:05:06.789+02:00  deny  ingress of shop/db from web/front-7  10.0.0.1:4242 -> 10.0.0.2:81 tcp  by default/knp/shop/db#end-of-tier": func(*Record) {},
		"allow egress  of shop/db to service shop/cache  ": func(r *Record) {
			r.Verdict, r.Direction, r.Peer = Allow, Egress, &Peer{PeerService, "shop/cache"}
		},
		"of shop/db  10.0.0.1 -> 10.0.0.2 icmp type 8 code 0  by": func(r *Record) {
			r.Peer, r.ICMP, r.Protocol = nil, &ICMP{Type: 8}, "icmp"
		},
		"10.0.0.1 -> 10.0.0.2 protocol 47  by": func(r *Record) {
			r.Protocol, r.Src, r.Dst = "47", netip.AddrPortFrom(r.Src.Addr(), 0), netip.AddrPortFrom(r.Dst.Addr(), 0)
		},
		"of interface cali1 from": func(r *Record) { r.Endpoint = "" },
		"of an unknown endpoint from node n1  ": func(r *Record) {
			r.Endpoint, r.Interface, r.Peer = "", "", &Peer{PeerNode, "n1"}
		},
		"#end-of-tier  logged by a, b  passed by c  (revoked)  [3 left out before it]": func(r *Record) {
			r.Trace, r.Note, r.Suppressed = &Trace{Logged: []string{"a", "b"}, Passed: []string{"c"}}, "revoked", 3
		},
	}
	for want, change := range tests {
		if got := record(change).Text(zone); !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

func TestFilter(t *testing.T) {
	tests := map[string]bool{
		"": true, "since=1": true,
		"namespace=shop": true, "namespace=sho": false, "namespace=web": false, "namespace=web&namespace=shop": true,
		"pod=db": true, "pod=d": true, "pod=shop/db": true, "pod=shop/": true, "pod=sho": false, "pod=shop/x": false, "pod=front": false,
		"verdict=deny": true, "verdict=allow": false, "direction=ingress": true, "direction=egress": false,
		"peer=front": true, "peer=web/": true, "peer=web/front-8": false, "peer=db": false,
		"peer=10.0.0.1": true, "peer=10.0.0.2": false, "peer=10.0.0.9/24": true, "peer=10.1.0.0/24&peer=10.0.0.1": true, "peer=2001:db8::/0": false,
		"port=81": true, "port=4242": false, "port=80&port=81": true,
		"namespace=shop&port=80": false, "namespace=shop&port=81&verdict=deny&direction=ingress&pod=db&peer=front": true,
	}
	for query, want := range tests {
		f := mustFilter(t, query)
		if got := f.Matches(record()); got != want {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
	outgoing := record(func(r *Record) { r.Direction = Egress })
	if f := mustFilter(t, "peer=10.0.0.2"); !f.Matches(outgoing) {
		t.Error("the peer of egress is not the destination")
	}
	nameless := record(func(r *Record) { r.Endpoint, r.Peer = "", nil })
	for query, want := range map[string]bool{"": true, "peer=front": false, "pod=db": false, "namespace=shop": false, "peer=10.0.0.1": true} {
		if f := mustFilter(t, query); f.Matches(nameless) != want {
			t.Errorf("a record without names and %q: %v", query, !want)
		}
	}
	for _, query := range []string{"verdict=denied", "direction=in", "port=http", "port=0", "port=65536", "pod=", "namespace=", "peer=", "port=", "peer=1.2.3.4/99", "peer=1.2.3.4/", "peer=fd65::1/129"} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseFilter(v); err == nil || !strings.Contains(err.Error(), strings.SplitN(query, "=", 2)[0]) {
			t.Errorf("%q: %v, want an error that names the parameter", query, err)
		}
	}
}

func mustFilter(t *testing.T, query string) Filter {
	t.Helper()
	v, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ParseFilter(v)
	if err != nil {
		t.Fatalf("%q: %v", query, err)
	}
	return f
}
