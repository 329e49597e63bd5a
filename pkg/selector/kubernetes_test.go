package selector

import "testing"

func TestSelectorsOfKubernetesObjectsReadLikeKubectl(t *testing.T) {
	const k8s = `projectcalico.org/orchestrator == "k8s" && `
	for text, want := range map[string]string{
		k8s + `projectcalico.org/namespace == "shop" && app == "api"`:                                "pods app=api in namespace shop",
		k8s + `projectcalico.org/namespace == "shop"`:                                                "all pods in namespace shop",
		k8s + `projectcalico.org/namespace == "shop" && app != "a" && tier in {"x", "y"}`:            "pods app!=a,tier in (x,y) in namespace shop",
		k8s + `projectcalico.org/namespace == "shop" && tier not in {"x", "y"} && has(a) && !has(b)`: "pods tier notin (x,y),a,!b in namespace shop",
		k8s + `pcns.team == "a" && app == "api"`:                                                     "pods app=api in namespaces with team=a",
		k8s + `pcns.kubernetes.io/metadata.name == "ops"`:                                            "all pods in namespace ops",
		k8s + `pcns.kubernetes.io/metadata.name in {"dev", "ops"} && app == "x"`:                     "pods app=x in namespaces dev, ops",
		k8s + `pcns.kubernetes.io/metadata.name == "ops" && pcns.team != "a"`:                        "all pods in namespace ops with team!=a",
		k8s + `pcns.kubernetes.io/metadata.name != "ops"`:                                            "all pods in namespaces with kubernetes.io/metadata.name!=ops",
		k8s + `has(projectcalico.org/namespace) && app == "x"`:                                       "pods app=x in all namespaces",
		k8s + `has(pcns.kubernetes.io/metadata.name) && !has(pcns.team)`:                             "all pods in namespaces with !team",
		`projectcalico.org/orchestrator == "k8s"`:                                                    "all pods in all namespaces",
		// Its author wrote these so.
		`app == "api"`:                              "",
		`all()`:                                     "",
		k8s + `app contains "x"`:                    "",
		k8s + `(app == "x" || app == "y")`:          "",
		k8s + `!(app == "x")`:                       "",
		k8s + `pcsa.team == "a"`:                    "",
		k8s + `projectcalico.org/name == "x"`:       "",
		k8s + `projectcalico.org/namespace != "x"`:  "",
		`projectcalico.org/orchestrator != "k8s"`:   "",
		`projectcalico.org/orchestrator == "other"`: "",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := s.Kubernetes()
		if got != want || ok != (want != "") {
			t.Errorf("%s\ngot  %q, %v\nwant %q", text, got, ok, want)
		}
	}
}
