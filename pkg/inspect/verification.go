package inspect

import (
	"context"
	"net/url"
	"time"
)

// Verification is what came of comparing the kernel with the objects.
type Verification struct {
	Proven      bool             `json:"proven"`    // of every endpoint asked for, and there is no difference
	Endpoints   int              `json:"endpoints"` // those that were compared to the end
	Questions   int              `json:"questions"` // packets judged by both sides
	Differences []DifferenceRow  `json:"differences"`
	NotProven   []NotProvenRow   `json:"notProven"` // endpoints and other parts that were not compared to the end
	Started     time.Time        `json:"started"`
	Took        VerificationCost `json:"cost"`
}

// VerificationCost is what a verification has cost.
type VerificationCost struct {
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpuSeconds"` // of the agent's thread that compares
	// LoopSeconds is the longest time that the agent's loop, which enforces changes, was kept waiting.
	LoopSeconds float64 `json:"loopSeconds"`
	Rounds      int     `json:"rounds"` // more than one if something changed meanwhile
}

// DifferenceRow is one thing in the kernel that is not as the objects demand.
type DifferenceRow struct {
	Namespace string `json:"namespace,omitempty"` // of the endpoint, as Name; empty: it concerns no endpoint in particular
	Name      string `json:"name,omitempty"`
	Direction string `json:"direction,omitempty"`
	Packet    string `json:"packet,omitempty"` // that is judged wrongly; one for all that are judged alike
	Evaluator string `json:"evaluator,omitempty"`
	Want      string `json:"want,omitempty"` // the verdict, and by which rule
	Got       string `json:"got,omitempty"`
	Text      string `json:"text"` // all of it in words
}

// NotProvenRow is an endpoint, or a part that belongs to none, that could not be verified.
type NotProvenRow struct {
	Namespace string `json:"namespace,omitempty"` // of the endpoint, as Name
	Name      string `json:"name,omitempty"`
	Part      string `json:"part,omitempty"` // empty: it is an endpoint
	Reason    string `json:"reason"`
}

// verifyWithin is how long a verification may take.
const verifyWithin = time.Hour

// Verify has the agent verify an endpoint, namespace/name; empty: all of them.
func (c Client) Verify(ctx context.Context, endpoint string) (*Verification, error) {
	parameters := url.Values{}
	if endpoint != "" {
		parameters.Set("endpoint", endpoint)
	}
	answer, err := c.AskWithin(ctx, verifyWithin, "/v1/verify", parameters)
	if err != nil {
		return nil, err
	}
	return answer.Verification, nil
}
