package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	instanceFlags
	output     outputFlag
	dir        string
	namespace  string
	ipv6       bool
	sourcePort uint16
	source     string
}

func explainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain SRC DST[:PORT][/PROTO]",
		Short: "Say whether SRC may open a flow to DST, and which rule decides",
		Long: `Say whether SRC may open a flow to DST, and which policy and rule decides on each side.

SRC and DST are pods (NAMESPACE/NAME; the beginning of a name is enough if no other pod's name begins so), addresses,
nodes (node/NAME) or all pods of a workload (deploy/NAME, rs/, sts/, ds/, job/; NAMESPACE/deploy/NAME). DST may be a
Service, by its name (svc/NAME), its address or its name in DNS: each of its backends is explained.

PORT is a number or a name; without one every port is explained, or every port of the Service. PROTO is tcp (the
default), udp, sctp, or without a port icmp, icmp:TYPE:CODE, icmpv6, udplite or a number.

The running agent answers, from the policy in force. If no agent runs, the answer comes from the policy that the last
one left in the kernel: then SRC and DST must be pods of this node or addresses. With --dir the answer comes from the
manifests in a directory, and needs neither an agent nor root nor Linux. Exit status: 0 all is allowed, 1 all or a
part is denied, 2 error.`,
		Example: `  margay explain shop/web shop/db:5432/tcp
  margay explain deploy/web svc/api:http -n shop
  margay explain shop/web shop/db
  margay explain --dir manifests 192.0.2.7 shop/web:443
  margay explain -6 shop/web shop/dns:53/udp -o json`,
		Args:              exactly(2, "SRC and DST, as in margay explain shop/web shop/db:5432/tcp"),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], args[1]) },
		ValidArgsFunction: completePods(2),
		SuggestFor:        []string{"why", "trace", "test"},
	}
	fs := cmd.Flags()
	fs.Var(manifestsFlag{&o.dir}, "dir", "explain from the manifests in this directory instead of asking the agent")
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of names without a namespace")
	fs.BoolVarP(&o.ipv6, "ipv6", "6", false, "over IPv6")
	fs.Uint16Var(&o.sourcePort, "source-port", explain.DefaultSourcePort, "source port, for rules that match source ports")
	fs.StringVar(&o.source, "source", "", "source address, if it is a further source of the pod SRC and none of its own addresses")
	o.output.register(fs)
	o.instanceFlags.register(fs)
	return cmd
}

func (o *explainOptions) run(cmd *cobra.Command, src, dst string) error {
	request, err := explain.ParseRequest(src, dst)
	if err != nil {
		return err
	}
	if o.sourcePort == 0 {
		return errors.New("--source-port 0: ports are numbers from 1 to 65535")
	}
	if o.source != "" {
		if request.SourceAddr, err = netip.ParseAddr(o.source); err != nil || request.SourceAddr.Zone() != "" {
			return fmt.Errorf("--source %q is no IP address", o.source)
		}
	}
	request.Namespace, request.IPv6, request.SourcePort = o.namespace, o.ipv6, o.sourcePort
	var explanation *explain.Explanation
	if o.dir != "" {
		explanation, err = o.offline(cmd, request)
	} else {
		explanation, err = o.live(cmd.Context(), request)
		if notAnswering(err) {
			explanation, err = o.pinned(cmd, request, err)
		}
	}
	if err != nil {
		return err
	}
	err = o.output.write(cmd.OutOrStdout(), explanation, func(w io.Writer) error { return writeExplanation(w, explanation) })
	if err == nil && explanation.Verdict != explain.VerdictAllow {
		return exitCode(1)
	}
	return err
}

func (o *explainOptions) offline(cmd *cobra.Command, r explain.Request) (*explain.Explanation, error) {
	m, err := loadDirectory(cmd.Context(), o.dir)
	if err != nil {
		return nil, err
	}
	if len(m.problems) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "margay: the manifests have %s; see: margay check --dir %s\n",
			count(len(m.problems), "problem"), o.dir)
	}
	return explain.NewState(m.updates).Explain(r)
}

func (o *explainOptions) live(ctx context.Context, r explain.Request) (*explain.Explanation, error) {
	parameters, err := inspect.ExplainParameters(r)
	if err != nil {
		return nil, err
	}
	answer, err := o.ask(ctx, "/v1/explain", parameters)
	if err != nil {
		return nil, err
	}
	return answer.Explanation, nil
}
