// Command margay is the node agent and its tools. All of it is cmd/agent/cli.
package main

import "github.com/margay-project/margay/cmd/agent/cli"

func main() { cli.Main() }
