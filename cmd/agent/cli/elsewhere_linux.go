package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// elsewhere says where the agent enforces with iptables, or that it enforces nothing, given that neither maps nor chains are found here;
// empty: no agent answers, or it enforces with BPF.
func (f *instanceFlags) elsewhere(ctx context.Context) string {
	answer, err := f.askWithin(ctx, silence, "/v1/status", nil)
	switch {
	case err != nil:
		return ""
	case answer.Status.Dataplane == "record":
		return fmt.Sprintf("the agent on %s enforces nothing (dataplane record), so there are neither flows nor drops", f.socketPath())
	case !strings.HasPrefix(answer.Status.Dataplane, "iptables"):
		return ""
	}
	begin := fmt.Sprintf("the agent on %s enforces with iptables", f.socketPath())
	const here = "/proc/thread-self/ns/net"
	of := ""
	if pid := peerProcess(f.socketPath()); pid > 0 { // otherwise it is in a PID namespace that this process does not see
		of = fmt.Sprintf("/proc/%d/ns/net", pid)
	}
	own, err := os.Stat(here)
	agent, agentErr := os.Stat(of)
	switch {
	case err != nil || agentErr != nil:
		return begin + ", and it has no chains in this network namespace: run this command where the agent runs"
	case os.SameFile(own, agent):
		return begin + " and has written no chains yet: margay show status says what it waits for"
	}
	return fmt.Sprintf("%s in another network namespace than this one: nsenter --net=%s margay, with the same arguments, reads what is enforced there", begin, of)
}

// peerProcess returns the number of the process that listens on a unix socket; 0: it is not known.
func peerProcess(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
