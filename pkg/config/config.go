// Package config is the agent's configuration in layers: one table of settings, where their values come from, and which
// of several counts. It is pure: from the text of a file, the environment, the flags and the datastore's objects it
// computes the configuration in force, the source of each value and the effect of a change.
//
// From low to high the layers are: built in; FelixConfiguration "default", one that selects this node, "node." and this
// node's name; file; environment; flag.
package config

import (
	"strconv"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
)

// Config is every setting's value. It is immutable: the map in it belongs to the caller that made the Config.
type Config struct {
	dataplane.Config // what a dataplane is configured with

	Objects
	Reports

	ConfigFile  string
	Node        string        // never empty once evaluated, unless the host's name is
	Dataplane   string        // auto, bpf, iptables or record
	ResyncEvery time.Duration // more than zero
	VerifyEvery time.Duration // 0: never
}

// Enforces reports whether the configured dataplane enforces policy, in place of only recording it.
func (c Config) Enforces() bool { return c.Dataplane != "record" }

// Objects configures the source of objects, and how they are read.
type Objects struct {
	Datastore      string // directory, kubernetes or etcd
	Dir            string // of manifests
	Kubeconfig     string // empty: the cluster this process runs in
	Etcd           Etcd
	PodAnnotations string // whose annotations say addresses of pods: none, calico or aws
	// SourceSpoofing: endpoints may send from the prefixes that their objects list, too.
	SourceSpoofing bool
	// DiscoveryEvery is how often, on average, a kind that the cluster does not serve is looked for; a second at least.
	DiscoveryEvery time.Duration
}

// Reports configures what the agent reports, and to whom.
type Reports struct {
	Socket         string // empty: the usual one of the instance
	LogLevel       string // debug, info, warn or error
	HealthAddress  string // host:port; empty: off
	MetricsAddress string // host:port; empty: off
	PProf          bool
	// EndpointDropMetrics counts drops by endpoint, too.
	EndpointDropMetrics bool
	EndpointStatusDir   string // empty: off
	Events              bool
}

// Defaults are the values that are built in, those of a dataplane included. Node is empty: it is the host's name.
func Defaults() Config {
	return Config{
		Config: dataplane.Defaults(),
		Objects: Objects{
			Datastore:      "directory",
			Etcd:           Etcd{DialTimeout: 10 * time.Second, KeepAlive: 10 * time.Second},
			PodAnnotations: "none",
			DiscoveryEvery: 2 * time.Minute,
		},
		Reports: Reports{
			LogLevel:       "info",
			HealthAddress:  "127.0.0.1:9096", // not 9098, which is Typha's: it is in the node's network, too
			MetricsAddress: "127.0.0.1:9097",
			Events:         true,
		},
		ConfigFile:  "/etc/margay/margay.yaml",
		Dataplane:   "auto",
		ResyncEvery: 90 * time.Second,
	}
}

// Effect is the step that applies a changed value. Later ones include the earlier ones.
type Effect uint8

const (
	// Unchanged: nothing has to be done.
	Unchanged Effect = iota
	// Live: the value is read each time that it is used.
	Live
	// Reopen: the dataplane is reopened with the new values; policy stays enforced.
	Reopen
	// Restart: all parts are restarted within the process; policy stays enforced.
	Restart
)

// String returns "unchanged", "live", "reopen" or "restart".
func (e Effect) String() string {
	switch e {
	case Unchanged:
		return "unchanged"
	case Live:
		return "live"
	case Reopen:
		return "reopen"
	case Restart:
		return "restart"
	}
	return "effect " + strconv.Itoa(int(e))
}
