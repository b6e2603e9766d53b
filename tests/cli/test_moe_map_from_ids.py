"""moe_map_from_ids through `switchyard run`: together with moe_route."""
import unittest

from st import CliTest, tensor


class MapFromIds(CliTest):
    def test_what_moe_route_chose(self):
        logits = {"logits": tensor("F32", [[3, 1, 2], [1, 2, 3]]), "finished": tensor("BOOL", [0, 1])}
        routed = self.ok("moe_route", logits, "--k", 2)
        r = self.ok("moe_map_from_ids", {"ids": routed["ids"], "weights": routed["weights"]}, "--num-experts", 3,
                    "--allow-missing")
        self.assertEqual(r["routing_map"].data, routed["routing_map"].data)
        self.assertEqual(r["probs"].data, routed["probs"].data)


if __name__ == "__main__":
    unittest.main()
