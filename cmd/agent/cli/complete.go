package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

// completeWithin is how long a shell waits for the agent's answer at most.
const completeWithin = 2 * time.Second

// completeFlags has the shell offer what flags of the command, and of those below it, can be.
func completeFlags(cmd *cobra.Command) {
	words := map[string][]string{}
	for _, s := range config.Settings() {
		if len(s.Words) > 0 {
			words[s.Name] = s.Words
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { completeFlag(cmd, f, words[f.Name]) })
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { completeFlag(cmd, f, words[f.Name]) })
	for _, c := range cmd.Commands() {
		completeFlags(c)
	}
}

// completeFlag registers one flag. An error says that it is registered already.
func completeFlag(cmd *cobra.Command, f *pflag.Flag, words []string) {
	offer := func(list []string) {
		_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
	}
	if c, ok := f.Value.(*choice); ok {
		offer(c.words)
		return
	}
	switch f.Name {
	case "dir", "bpffs", "endpoint-status-dir":
		_ = cmd.MarkFlagDirname(f.Name)
	case "socket", "kubeconfig", "config-file", "etcd-ca-file", "etcd-cert-file", "etcd-key-file", "etcd-password-file":
	case "namespace", "pod":
		_ = cmd.RegisterFlagCompletionFunc(f.Name, completeNames(f.Name))
	default:
		offer(words)
	}
}

// completeNames offers the namespaces, or the pods without theirs, that the agent has.
func completeNames(what string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, e := range agentEndpoints(cmd) {
			if what == "namespace" {
				names = append(names, e.Namespace)
			} else {
				names = append(names, e.Name)
			}
		}
		return beginning(names, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// completePods offers NAMESPACE/NAME for the first most arguments.
func completePods(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, e := range agentEndpoints(cmd) {
			names = append(names, endpointName(&e))
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if most > 1 && len(args) == most-1 {
			directive |= cobra.ShellCompDirectiveNoSpace // a port follows
		}
		return beginning(names, begun), directive
	}
}

// agentEndpoints asks the agent that the flags mean, or reads the manifests if they name a directory. Without an answer
// nothing is offered.
func agentEndpoints(cmd *cobra.Command) []inspect.EndpointRow {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	_ = fromEnvironment(cmd)
	if dir := cmd.Flags().Lookup("dir"); dir != nil && dir.Value.String() != "" {
		return directoryEndpoints(ctx, dir.Value.String())
	}
	var f instanceFlags
	for name, to := range map[string]*string{"instance": &f.instance, "socket": &f.socket} {
		if flag := cmd.Flags().Lookup(name); flag != nil {
			*to = flag.Value.String()
		}
	}
	answer, err := f.ask(ctx, "/v1/endpoints", nil)
	if err != nil {
		return nil
	}
	return answer.Endpoints
}

// beginning are the words that begin with the text that the user has typed, each once, in order.
func beginning(words []string, begun string) []string {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" || !strings.HasPrefix(w, begun) })
	slices.Sort(words)
	return slices.Compact(words)
}
