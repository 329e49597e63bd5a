package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// FelixField is what becomes of one field of a FelixConfiguration.
type FelixField struct {
	Field    string
	Settings []string // it is taken for; nil: it is not used
	Why      string   // it is not used, or not as Felix uses it; empty: there is nothing to say
	Reported bool     // as a problem, if it asks for a feature that is not built
}

// FelixFields are the fields that are known, in the order of their names.
func FelixFields() []FelixField {
	found := map[string]*FelixField{}
	at := func(name string) *FelixField {
		if found[name] == nil {
			found[name] = &FelixField{Field: name}
		}
		return found[name]
	}
	for _, group := range unused {
		for name := range strings.FieldsSeq(group.fields) {
			at(name).Why = group.why
		}
	}
	for name, u := range unsupported {
		f := at(name)
		f.Why, f.Reported = "unless it is "+strings.Join(u.fine, " or ")+": "+u.why, true
	}
	for _, s := range settings {
		for _, name := range s.Felix {
			f := at(name)
			f.Settings, f.Why = append(f.Settings, s.Name), differently[name]
		}
	}
	var list []FelixField
	for _, f := range found {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b FelixField) int { return cmp.Compare(a.Field, b.Field) })
	return list
}

// differently says of fields that are used how they differ.
var differently = map[string]string{
	"defaultEndpointToHostAction": "Return and Accept are the same here: the host's own rules still see the packet; only an explicit value counts, Felix' default of Drop does not",
	"interfacePrefix":             "of a list the first",
	fieldVXLANAllowed:             "only together with " + fieldIPIPAllowed + ", both the same",
	fieldIPIPAllowed:              "only together with " + fieldVXLANAllowed + ", both the same",
	fieldTimeouts:                 "by key; creationGracePeriod, tcpResetSeen and the value Auto are not used",
	"endpointStatusPathPrefix":    "endpoint-status below it; only an explicit value counts",
	"logSeverityScreen":           "Trace is debug, Fatal is error",
}

// unused are the fields that say nothing here, by why.
var unused = []struct{ why, fields string }{
	{"Felix' own port: it would clash with a Felix on the same node; see health-address, metrics-address and pprof",
		`healthEnabled healthHost healthPort prometheusMetricsEnabled prometheusMetricsHost prometheusMetricsPort
		prometheusMetricsCAFile prometheusMetricsCertFile prometheusMetricsKeyFile prometheusMetricsClientAuth
		debugHost debugPort`},
	{"of Felix' own process", `healthTimeoutOverrides dataplaneWatchdogTimeout useInternalDataplaneDriver dataplaneDriver
		featureDetectOverride featureGates prometheusGoMetricsEnabled prometheusProcessMetricsEnabled
		prometheusWireGuardMetricsEnabled debugMemoryProfilePath debugDisableLogDropping debugSimulateCalcGraphHangAfter
		debugSimulateDataplaneHangAfter debugSimulateDataplaneApplyDelay debugPanicAfter netlinkTimeout
		usageReportingEnabled usageReportingInitialDelay usageReportingInterval`},
	{"of Go's runtime: set GOGC, GOMEMLIMIT and GOMAXPROCS in the agent's environment",
		`goGCThreshold goMemoryLimitMB goMaxProcs`},
	{"logs go to standard error only", `logFilePath logSeverityFile logSeveritySys logDebugFilenameRegex`},
	{"of the iptables, nftables and XDP dataplanes; what is in the kernel is compared every resync-every, at little cost",
		`iptablesRefreshInterval ipsetsRefreshInterval nftablesRefreshInterval xdpRefreshInterval
		interfaceRefreshInterval routeRefreshInterval iptablesPostWriteCheckInterval iptablesLockFilePath
		iptablesLockTimeout iptablesLockProbeInterval iptablesBackend nftablesMode maxIpsetSize chainInsertMode
		iptablesFilterAllowAction iptablesMangleAllowAction nftablesFilterAllowAction nftablesMangleAllowAction
		disableConntrackInvalidCheck xdpEnabled genericXDPEnabled sidecarAccelerationEnabled kubeNodePortRanges`},
	{"Felix' own mark bits: a Felix on the same node uses them; see mark-mask", `iptablesMarkMask nftablesMarkMask`},
	{"of the maps and programs of Felix' BPF dataplane, which are others; see map-size",
		`bpfEnabled bpfLogLevel bpfConntrackLogLevel bpfLogFilters bpfCTLBLogFilter bpfDataIfacePattern bpfL3IfacePattern
		bpfAttachType bpfEnforceRPF bpfPolicyDebugEnabled bpfJITHardening bpfDisableUnprivileged bpfMapSizeConntrack
		bpfMapSizePerCpuConntrack bpfMapSizeConntrackScaling bpfMapSizeConntrackCleanupQueue bpfMapSizeIPSets
		bpfMapSizeRoute bpfMapSizeIfState bpfMapSizeNATFrontend bpfMapSizeNATBackend bpfMapSizeNATAffinity
		bpfConntrackCleanupMode bpfIPFragmentReassemblyEnabled bpfHostConntrackBypass bpfForceTrackPacketsFromIfaces
		bpfDisableGROForIfaces bpfRedirectToPeer bpfProfiling bpfExportBufferSizeMB cgroupV2Path`},
	{"of services, which kube-proxy translates", `bpfConnectTimeLoadBalancing bpfConnectTimeLoadBalancingEnabled
		bpfHostNetworkedNATWithoutCTLB bpfExternalServiceMode bpfDSROptoutCIDRs bpfExtToServiceConnmark
		bpfKubeProxyIptablesCleanupEnabled bpfKubeProxyMinSyncPeriod bpfKubeProxyEndpointSlicesEnabled
		bpfKubeProxyHealthzPort bpfPSNATPorts bpfExcludeCIDRsFromNAT bpfOverlayHostSourceIP serviceLoopPrevention`},
	{"of networking, which the CNI plugin does", `ipipEnabled ipipMTU vxlanEnabled vxlanMTU vxlanMTUV6 vxlanVNI
		externalNodesList natPortRange natOutgoingAddress natOutgoingExclusions iptablesNATOutgoingInterfaceFilter
		floatingIPs deviceRouteSourceAddress deviceRouteSourceAddressIPv6 deviceRouteProtocol removeExternalRoutes
		ipForwarding ipv4NormalRoutePriority ipv4ElevatedRoutePriority ipv6NormalRoutePriority ipv6ElevatedRoutePriority
		routeSource routeTableRange routeTableRanges routeSyncDisabled programClusterRoutes mtuIfacePattern
		wireguardEnabled wireguardEnabledV6 wireguardThreadingEnabled wireguardListeningPort wireguardListeningPortV6
		wireguardRoutingRulePriority wireguardInterfaceName wireguardInterfaceNameV6 wireguardMTU wireguardMTUV6
		wireguardHostEncryptionEnabled wireguardKeepAlive awsSrcDstCheck metadataAddr metadataPort openstackRegion
		ipv6Support requireMTUFile`},
	{"of host endpoints, which are not enforced", `failsafeInboundHostPorts failsafeOutboundHostPorts interfaceExclude`},
	{"of features that are not here", `logPrefix logActionRateLimit logActionRateLimitBurst policySyncPathPrefix
		endpointReportingEnabled endpointReportingDelay reportingInterval reportingTTL flowLogsFlushInterval
		flowLogsGoldmaneServer flowLogsLocalReporter flowLogsPolicyEvaluationMode flowLogsCollectorDebugTrace
		windowsManageFirewallRules localSubnetL2Reachability`},
	{"it says which nodes the object is for", `nodeSelector`},
}

// knownField reports whether a field of that name exists, as far as is known.
var knownFields = func() map[string]bool {
	known := map[string]bool{}
	for _, f := range FelixFields() {
		known[f.Field] = true
	}
	return known
}()

// misspelt is the field that an unknown name was meant for; empty: it may be of a newer Felix.
func misspelt(field string) string {
	if knownFields[field] {
		return ""
	}
	name, distance := nearest(field, slices.Sorted(maps.Keys(knownFields)))
	if distance > 2 {
		return ""
	}
	return name
}
