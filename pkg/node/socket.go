package node

import (
	"path/filepath"

	"github.com/margay-project/margay/pkg/config"
)

// Socket returns the path of the socket on which the agent of an instance answers its tools.
func Socket(of config.Config) string {
	if of.Socket != "" {
		return of.Socket
	}
	dir := "margay"
	if of.Instance != "" {
		dir += "-" + of.Instance
	}
	return filepath.Join("/run", dir, "agent.sock")
}
