// Package inspect is what the agent and its tools say to each other: the answers of the agent's unix socket, and a client
// for it. Field names are part of the tools' -o json output. It depends on nothing that needs Linux.
package inspect

import (
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/flows"
)

// ConditionClosed says that a workload interface has no pod of this node: nothing but ARP and neighbour discovery passes.
const ConditionClosed = "closed"

// ConditionPending says that the newest policy of the endpoint is not in force yet: its write failed and is tried again, or it is large and
// still being compiled. Error says which. Until then the endpoint is judged by an earlier policy, or is closed.
const ConditionPending = "pending"

// EndpointRow is one local endpoint, or, with ConditionClosed, a workload interface without one.
type EndpointRow struct {
	Namespace string       `json:"namespace"` // empty, as Name: no pod is known for the interface
	Name      string       `json:"name"`
	Interface string       `json:"interface"`
	Ifindex   uint32       `json:"ifindex"` // 0: the interface is not there
	Addrs     []netip.Addr `json:"addrs"`
	// Sources are prefixes that it may send from although it owns none of their addresses.
	Sources      []netip.Prefix `json:"sources,omitempty"`
	SourcesError string         `json:"sourcesError,omitempty"` // why packets from some of them are dropped
	Ingress      Direction      `json:"ingress"`
	Egress       Direction      `json:"egress"`
	Attached     []Attachment   `json:"attached"`            // our programs on the interface
	Lost         []LostAddr     `json:"lost,omitempty"`      // addresses that the pod claims and does not own
	Condition    string         `json:"condition,omitempty"` // ConditionPending or ConditionClosed; empty: neither
	Error        string         `json:"error,omitempty"`     // why it is not as it should be
}

// LostAddr is an address that a pod claims and does not own: packets that it sends from the address are dropped as
// spoofed.
type LostAddr struct {
	Addr      netip.Addr `json:"addr"`
	Condition string     `json:"condition"`       // NotRouted, Taken, Disputed or Reserved
	Owner     string     `json:"owner,omitempty"` // Taken: the pod that owns it, namespace/name
	Reason    string     `json:"reason"`
}

// Attachment is one of our programs at one hook.
type Attachment struct {
	Hook     string `json:"hook"` // in TCX terms, not the pod's: "tcx/ingress" sees what the pod sends
	Program  string `json:"program"`
	Attached bool   `json:"attached"`           // false: somebody has detached it
	Link     uint32 `json:"link"`               // kernel's id of the link
	ID       uint32 `json:"id"`                 // kernel's id of the program
	Before   int    `json:"before"`             // programs of others that run first
	BeforeOf string `json:"beforeOf,omitempty"` // whose those are, in words
	After    int    `json:"after"`
}

// Direction describes one direction of an endpoint: the newest policies, which with ConditionPending are not in force yet, and what is in
// force.
type Direction struct {
	Policies   []string `json:"policies"` // tier/kind/namespace/name in order of evaluation; empty: only profiles
	Slot       uint32   `json:"slot"`     // key in the maps slots, rules, cells, …
	Generation uint32   `json:"generation"`
	Rules      int      `json:"rules"` // entries of the ordered match table that packets can reach
}

// PolicyRow is one policy of the cluster. Without an agent only those that apply to a local endpoint are known, without
// their orders.
type PolicyRow struct {
	Tier      string   `json:"tier"`
	TierOrder *float64 `json:"tierOrder"` // null: none, or there is no such tier
	Order     *float64 `json:"order"`     // null: none
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Ingress   int      `json:"ingressEndpoints"` // local endpoints it applies to
	Egress    int      `json:"egressEndpoints"`
	Staged    bool     `json:"staged,omitempty"`
}

// StagedRow is one direction of a staged policy: the new flows that it would have decided otherwise than the enforced
// policies.
type StagedRow struct {
	Tier       string `json:"tier"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Direction  string `json:"direction"`
	Endpoints  int    `json:"endpoints"`  // local ones that it applies to
	WouldDeny  uint64 `json:"wouldDeny"`  // first packets of flows that are allowed
	WouldAllow uint64 `json:"wouldAllow"` // packets that are denied, each of which is the first one of a flow
	// NotEvaluated is why staged policies of a pod that it applies to, as they are now, are not evaluated: "shop/db: …"; empty: they are.
	NotEvaluated string          `json:"notEvaluated,omitempty"`
	Examples     []*flows.Record `json:"examples"` // the latest ones, the oldest first; events are rate limited
}

// RuleRow is one entry of an endpoint's ordered match table.
type RuleRow struct {
	Direction    string `json:"direction"`
	Index        int    `json:"index"`  // in the map rules
	Rule         string `json:"rule"`   // as traces have it: tier/kind/namespace/name#rule
	Reason       string `json:"reason"` // the same for people: "NetworkPolicy shop/db ingress[0]", "no rule matches"
	Object              // behind the entry; zero: none
	Tier         string `json:"tier,omitempty"`
	Action       string `json:"action"`
	Match        string `json:"match"`
	NeverReached bool   `json:"neverReached,omitempty"` // entries before it decide every packet
	ID           uint32 `json:"id"`                     // in the map rule_stats; 0: not counted
	Packets      uint64 `json:"packets"`
	Bytes        uint64 `json:"bytes"`
}

// Object is what an API server calls an object.
type Object struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
}

// SetRow is one set of addresses that rules refer to.
type SetRow struct {
	Number  uint32   `json:"number"` // in class_sets and set_names; 0: no rule in the kernel uses it
	ID      string   `json:"id"`
	Text    string   `json:"text"`
	Members int      `json:"members"`
	Some    []string `json:"some"` // the first few members
	// Namespaces are those of the pods among the members, sorted. Without an agent only pods of this node are known.
	Namespaces []string `json:"namespaces"`
}

// The severities of problems that are no object's mistake, beside those of package validate.
const (
	// SeverityLint is that of policy that is enforced as written, but most likely does not say what its author meant.
	SeverityLint = "lint"
	// SeverityEndpoint is that of a local endpoint whose policy is not enforced, or not the newest, and in manifests of a pod whose policy
	// no node would enforce. The row's object is the endpoint.
	SeverityEndpoint = "endpoint"
)

// ProblemRow is something in the datastore that is not enforced as written.
type ProblemRow struct {
	Severity string `json:"severity"` // "warning", "rules left out" or "rejected" of an object, SeverityLint or SeverityEndpoint
	Object   string `json:"object"`   // with file and line where there is one
	Field    string `json:"field,omitempty"`
	Reason   string `json:"reason"`
	// Namespace is the object's, or the object itself if it is a Namespace; empty: it has none, or it is not known.
	Namespace string `json:"namespace,omitempty"`
}

// ConfigRow is one setting of the agent.
type ConfigRow struct {
	Name       string        `json:"name"`
	Value      string        `json:"value"`
	Source     string        `json:"source"`     // "--log-level", "FelixConfiguration default, field logSeverityScreen"
	Effect     string        `json:"effect"`     // of a change: "live", "reopen" or "restart"
	Overridden []ConfigValue `json:"overridden"` // the layers below, the highest first
}

// ConfigValue is a value that another layer's has been put over.
type ConfigValue struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// StatusReport is the answer to "how are you".
type StatusReport struct {
	NoAgent  bool     `json:"noAgent,omitempty"`  // no agent answers: the report is from the kernel's maps
	InSync   bool     `json:"inSync"`             // the first full snapshot has been enforced
	Ready    bool     `json:"ready"`              // in sync, the last attempt enforced all that can be, and nothing else is in the way
	NotReady []string `json:"notReady,omitempty"` // the components that are not ready, each with why, as /readyz has them
	Attempts
	Agent
	EndpointCounts
	// Inherited is, before the first full snapshot, on how many interfaces policy of an earlier agent is enforced.
	Inherited int       `json:"inherited,omitempty"`
	Problems  int       `json:"problems"`
	Kinds     []KindRow `json:"kinds"`
}

// Attempts counts the agent's attempts to enforce the desired state.
type Attempts struct {
	Applied     time.Time `json:"applied"`         // the last that succeeded; zero: never
	TookSeconds float64   `json:"tookSeconds"`     // of that one
	Error       string    `json:"error,omitempty"` // of the last attempt
	Held        string    `json:"held,omitempty"`  // the endpoints whose policy cannot be enforced, a line each
	Applies     uint64    `json:"applies"`
	Failed      uint64    `json:"failed"`
}

// Agent is who answers.
type Agent struct {
	Node      string    `json:"node"`
	Dataplane string    `json:"dataplane"`
	Chosen    Choice    `json:"chosen,omitzero"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
}

// Choice is how an agent came to its dataplane.
type Choice struct {
	How    ChoiceKind `json:"how"`
	Reason string     `json:"reason,omitempty"` // of a fallback: what this node lacks, one line
}

// ChoiceKind is a kind of choice.
type ChoiceKind string

// The kinds of choices.
const (
	ChoiceConfigured ChoiceKind = "configured" // the setting names the dataplane
	ChoicePreferred  ChoiceKind = "preferred"  // the setting is auto, and the node has what the preferred dataplane needs
	ChoiceFallback   ChoiceKind = "fallback"   // the setting is auto, and the node lacks something
)

// EndpointCounts are numbers of workload interfaces.
type EndpointCounts struct {
	Endpoints int `json:"endpoints"`         // of this node
	Enforced  int `json:"enforced"`          // of them, those whose policy is enforced
	Waiting   int `json:"waiting,omitempty"` // of the rest, those whose interface is not there (yet)
	Closed    int `json:"closed"`            // workload interfaces without an endpoint
}

// KindRow is how it stands with one kind of object of the datastore.
type KindRow struct {
	Kind     string    `json:"kind"`
	State    string    `json:"state"`    // listing, synced, absent or failing
	Required bool      `json:"required"` // nothing is enforced before its first list
	Listed   bool      `json:"listed"`   // a full list has been seen, or the kind is absent
	Since    time.Time `json:"since"`    // of the state
	Objects  int       `json:"objects"`
	Revision int64     `json:"revision,omitempty"` // of etcd
	// Read is the API group and version that is read, if the kind is served in several; NotRead describes the others.
	Read    string `json:"read,omitempty"`
	NotRead string `json:"notRead,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Answer is what the socket answers; the field asked for is filled in, or Error.
type Answer struct {
	Status       *StatusReport        `json:"status,omitempty"`
	Endpoints    []EndpointRow        `json:"endpoints,omitempty"`
	Policies     []PolicyRow          `json:"policies,omitempty"`
	Order        []explain.OrderRow   `json:"order,omitempty"`
	Staged       []StagedRow          `json:"staged,omitempty"`
	Rules        []RuleRow            `json:"rules,omitempty"`
	Sets         []SetRow             `json:"sets,omitempty"`
	Problems     []ProblemRow         `json:"problems,omitempty"`
	Config       []ConfigRow          `json:"config,omitempty"`
	Explanation  *explain.Explanation `json:"explanation,omitempty"`
	Verification *Verification        `json:"verification,omitempty"`
	Error        string               `json:"error,omitempty"`
}
