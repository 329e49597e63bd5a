package cluster

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// settings is the environment an agent of these objects gets, but for what is taken from its pod.
func (all objects) settings(t *testing.T) []string {
	t.Helper()
	var environment []string
	for key, m := range all {
		if !strings.HasPrefix(key, "ConfigMap ") || strings.HasSuffix(key, "-dashboard") {
			continue
		}
		data, _, err := unstructured.NestedStringMap(m.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range data {
			environment = append(environment, name+"="+value)
		}
	}
	for _, p := range all.containers(t) {
		variables, _, err := unstructured.NestedSlice(p.container, "env")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range variables {
			v := v.(map[string]any)
			value, _ := v["value"].(string)
			environment = append(environment, fmt.Sprintf("%s=%s", v["name"], cmp.Or(value, "of-the-pod")))
		}
	}
	return environment
}

// placed is a container and the object with its pod.
type placed struct{ container, set map[string]any }

// containers are those of all pods, the first ones among them.
func (all objects) containers(t *testing.T) (list []placed) {
	t.Helper()
	for _, o := range all {
		for _, kind := range []string{"initContainers", "containers"} {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", kind)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range containers {
				list = append(list, placed{c.(map[string]any), o.Object})
			}
		}
	}
	return list
}

// nested is a value in an object, nil if it is not there.
func nested(object map[string]any, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	return value
}

// named is the entry of a list that has a name, nil if there is none.
func named(list any, name string) map[string]any {
	entries, _ := list.([]any)
	for _, e := range entries {
		if e, ok := e.(map[string]any); ok && e["name"] == name {
			return e
		}
	}
	return nil
}

// probed are the addresses at which the agents' probes ask.
func (all objects) probed(t *testing.T) (addresses []string) {
	t.Helper()
	for _, container := range all.agents(t) {
		for _, probe := range []string{"livenessProbe", "readinessProbe"} {
			get, found, err := unstructured.NestedMap(container, probe, "httpGet")
			if err != nil {
				t.Fatal(err)
			}
			if found {
				host, _ := get["host"].(string)
				addresses = append(addresses, net.JoinHostPort(host, fmt.Sprint(get["port"])))
			}
		}
	}
	return addresses
}

// agents are the containers with an agent.
func (all objects) agents(t *testing.T) (agents []map[string]any) {
	t.Helper()
	for _, p := range all.containers(t) {
		if p.container["name"] == "agent" {
			agents = append(agents, p.container)
		}
	}
	return agents
}
