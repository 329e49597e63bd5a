package selector

import "testing"

func TestSelectorsOfCalicoPoliciesReadAsTheirAuthorsWroteThem(t *testing.T) {
	const inShop = `projectcalico.org/namespace == "shop"`
	for text, want := range map[string]string{
		`all()`:                           `selector all()`,
		`global()`:                        `selector all() outside of namespaces`,
		`app == "db" || has(role)`:        `selector app == "db" || has(role)`,
		inShop:                            `selector all() in namespace shop`,
		inShop + ` && !(role == "front")`: `selector !(role == "front") in namespace shop`,
		`pcns.env == "dev"`:               `selector all() in namespaces with env == "dev"`,
		`pcns.env == "p" && has(pcns.t) && (a == "x" || a == "y") && !(b == "z")`:      `selector (a == "x" || a == "y") && !(b == "z") in namespaces with env == "p" && has(t)`,
		`(pcns.env == "p" || !has(pcns.t)) && has(a)`:                                  `selector has(a) in namespaces with env == "p" || !has(t)`,
		`has(projectcalico.org/namespace) && a == "x"`:                                 `selector a == "x" in any namespace`,
		`!has(projectcalico.org/namespace) && a == "x"`:                                `selector a == "x" outside of namespaces`,
		inShop + ` && projectcalico.org/serviceaccount in {"a", "b"} && pcsa.x == "y"`: `selector all() in namespace shop with service account a or b with a service account that has x == "y"`,
		`has(projectcalico.org/serviceaccount)`:                                        `selector all() with any service account`,
		`projectcalico.org/orchestrator == "k8s" && ` + inShop + ` && app == "db"`:     `pods app=db in namespace shop`,
		`pcns.env != "p" && ` + OfKnownNamespace + ` && has(a)`:                        `selector has(a) in namespaces with env != "p"`,
		// These have no parts of that kind.
		`app == "db" || pcns.env == "dev"`:              `selector app == "db" || pcns.env == "dev"`,
		`pcns.env == "dev" || pcsa.env == "dev"`:        `selector pcns.env == "dev" || pcsa.env == "dev"`,
		`projectcalico.org/namespace != "shop"`:         `selector projectcalico.org/namespace != "shop"`,
		`!(projectcalico.org/namespace == "shop")`:      `selector !(projectcalico.org/namespace == "shop")`,
		inShop + ` && projectcalico.org/name == "x"`:    `selector projectcalico.org/namespace == "shop" && projectcalico.org/name == "x"`,
		inShop + ` && has(projectcalico.org/namespace)`: `selector projectcalico.org/namespace == "shop" && has(projectcalico.org/namespace)`,
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Words(); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// The author of a Calico policy writes any text between quotes. It does not pass for words of another selector.
func TestValuesDoNotPassForWords(t *testing.T) {
	const pods = `projectcalico.org/orchestrator == "k8s" && `
	for _, text := range []string{
		pods + `app != "x in namespace shop"`,
		pods + `projectcalico.org/namespace == "shop" && app != "x,team=blue"`,
		pods + `projectcalico.org/namespace == "shop with env=prod"`,
		pods + `app not in {"x", "y) in namespace shop"}`,
		`role == "a" && projectcalico.org/namespace in {"mine", "shop in namespaces with env"}`,
		`role == "a" && projectcalico.org/serviceaccount == "web or db"`,
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := s.Words(), "selector "+s.String(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
