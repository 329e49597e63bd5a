package validate

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineOf returns the line of the field at path below root, or of the innermost thing around it that is there. Zero for
// a nil root.
func lineOf(root *yaml.Node, path string) int {
	if root == nil {
		return 0
	}
	line, at := root.Line, root
	for path != "" {
		var step string
		step, path = nextStep(path)
		next, stepLine := child(at, step)
		if next == nil {
			break
		}
		at, line = next, stepLine
	}
	return line
}

// nextStep takes the first step off a path such as "spec.ingress[0].from".
func nextStep(path string) (step, rest string) {
	i := strings.IndexAny(path[1:], ".[")
	if i < 0 {
		step, rest = path, ""
	} else {
		step, rest = path[:i+1], path[i+1:]
	}
	return strings.TrimPrefix(step, "."), rest
}

// child returns the value one step below n and the line it is written on; that is the line of its key if it has one.
func child(n *yaml.Node, step string) (*yaml.Node, int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if num, ok := strings.CutPrefix(step, "["); ok {
		i, err := strconv.Atoi(strings.TrimSuffix(num, "]"))
		if err != nil || n.Kind != yaml.SequenceNode || i < 0 || i >= len(n.Content) {
			return nil, 0
		}
		return n.Content[i], n.Content[i].Line
	}
	if n.Kind != yaml.MappingNode {
		return nil, 0
	}
	// From the end, so that of a field that is written twice the second is found.
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		if n.Content[i].Value == step {
			return n.Content[i+1], n.Content[i].Line
		}
	}
	return nil, 0
}
