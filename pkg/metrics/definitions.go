package metrics

import "github.com/prometheus/client_golang/prometheus"

// definition is a metric that is collected when somebody scrapes.
type definition struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) definition {
	return define(prometheus.GaugeValue, name, help, labels)
}

func total(name, help string, labels ...string) definition {
	return define(prometheus.CounterValue, name, help, labels)
}

func define(kind prometheus.ValueType, name, help string, labels []string) definition {
	return definition{prometheus.NewDesc(prefix+name, help, labels, nil), kind}
}

var (
	buildInfo    = gauge("build_info", "1, labelled with the version, the dataplane and the node.", "version", "dataplane", "node")
	choice       = gauge("dataplane_info", "1, labelled with the dataplane and with how it was chosen.", "dataplane", "chosen")
	startTime    = gauge("start_time_seconds", "When the agent started, in seconds since 1970.")
	snapshotAge  = gauge("snapshot_age_seconds", "Age of the numbers from the agent's loop; more than 0 while the loop is busy.")
	readFailures = total("scrape_failures_total", "Scrapes in which some numbers were not available in time, by their source.", "part")

	inSync         = gauge("in_sync", "1 if the first full snapshot of the datastore has been enforced.")
	ready          = gauge("ready", "1 if in sync and the last attempt to enforce succeeded.")
	componentLive  = gauge("component_live", "1 if the component of the agent is live.", "component")
	componentReady = gauge("component_ready", "1 if the component of the agent is ready.", "component")

	endpoints       = gauge("endpoints", "Endpoints of this node, by whether their policy is enforced.", "state")
	remoteEndpoints = gauge("remote_endpoints", "Endpoints of other nodes.")
	policies        = gauge("policies", "Policies in the cluster.")
	profiles        = gauge("profiles", "Profiles in the cluster.")
	services        = gauge("services", "Services in the cluster.")
	sets            = gauge("sets", "Address sets that rules which apply on this node refer to.")
	setMembers      = gauge("set_members", "Members of these sets together.")
	kernelSets      = gauge("kernel_sets", "Address sets that policy in the kernel refers to, CIDR lists of rules included.")
	rules           = gauge("rules", "API rules that policy in the kernel consists of.")
	classes         = gauge("classes", "Classes of addresses that policy in the kernel tells apart.")
	tables          = gauge("tables", "Compiled policies in the kernel. Endpoint-directions with the same policy share one.")
	tableBytes      = gauge("table_bytes", "Size of compiled policies in the kernel, by whether they are in use.", "state")
	unwritten       = gauge("unwritten_changes", "Batches of changes that are not completely in the kernel.")
	repairs         = total("repairs_total", "State in the kernel that another program had changed and the agent repaired.")
	cniFiles        = gauge("cni_files", "Files by which CNI plugins wait for the policy of pods, by whether the last attempt could write or remove them.", "state")

	mapEntries    = gauge("map_entries", "Entries of a map in the kernel.", "map")
	mapMaxEntries = gauge("map_max_entries", "Entries that a map in the kernel has room for.", "map")

	kindState    = gauge("kind_state", "1 for the state that a kind of object of the datastore is in.", "kind", "state")
	kindSeconds  = gauge("kind_state_seconds", "How long the kind has been in its state.", "kind")
	kindRequired = gauge("kind_required", "1 if nothing is enforced before the first list of the kind.", "kind")
	kindObjects  = gauge("kind_objects", "Objects of the kind that are known.", "kind")
	kindLists    = total("kind_lists_total", "Full lists of the kind.", "kind")
	kindFailures = total("kind_failures_total", "Failed lists and watches of the kind.", "kind")
	kindRevision = gauge("kind_revision", "Revision of the datastore that is known, for the kind that stands for all of etcd.", "kind")
	kindEvents   = total("kind_events_total", "Changes of the kind seen by watching.", "kind")

	problemObjects = gauge("problem_objects", "Objects that are not enforced as written, by kind and the severity of their worst problem.", "kind", "severity")

	droppedPackets   = total("dropped_packets_total", "Dropped packets, by reason and direction.", "reason", "direction")
	droppedBytes     = total("dropped_bytes_total", "Bytes of dropped packets, by reason and direction.", "reason", "direction")
	endpointDropped  = total("endpoint_dropped_packets_total", "Dropped packets, by endpoint and direction. Only with endpoint-drop-metrics.", "namespace", "endpoint", "direction")
	stagedFlows      = total("staged_flows_total", "New flows that staged policies would have decided otherwise, by the policies' namespace and that verdict.", "namespace", "direction", "verdict")
	eventsWritten    = total("verdict_events_total", "Verdict events written by the kernel.")
	eventsRead       = total("verdict_events_read_total", "Verdict events that the agent has read.")
	eventsSuppressed = gauge("verdict_events_suppressed", "Verdict events left out since the last one that was written.")
	flowsExpired     = total("expired_flows_total", "Flows removed because they had expired, by kind of table.", "table")
	flowsRefused     = total("refused_flows_total", "Open flows beyond their endpoint's share: they may be evicted while they are in use, and with iptables they were removed.")
)
