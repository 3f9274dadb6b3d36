"""The role that each operation requires."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request

from api.dependencies import get_caller, get_services
from schemas.errors import Forbidden
from schemas.principals import Role

READER_OPERATIONS = (
    "search query list_documents get_document list_revisions list_chunks get_markdown get_file "
    "document_events document_lineage query_graph "
    "list_entities get_entity get_subgraph list_collections get_collection "
    "list_runs get_run rerun_run diff_run "
    "start_run get_run_status stream_run get_run_artifacts cancel_run "
    "run_lineage list_profiles get_profile "
    "list_facts get_fact "
    "ingest_status ingest_status_by_event list_events stream give_feedback get_config_schema "
    "health whoami"
)
WRITER_OPERATIONS = "ingest amend_document delete_document propose_fact"
ADMIN_OPERATIONS = (
    "configure_collection delete_collection "
    "list_sources get_source add_source remove_source reset_source erase list_erasures get_erasure "
    "approve_fact reject_fact delete_fact "
    "list_dead_letters list_causes redrive discard_dead_letters start_replay list_replays "
    "get_replay change_replay "
    "amend_entity list_generations get_generation list_exams get_exam "
    "export_judgements list_candidates draft_questions "
    "create_key list_keys rotate_key revoke_key list_audit metrics"
)
OPERATOR_OPERATIONS = (
    "build_generation plan_generation get_build pace_build compare_generations examine calibrate "
    "promote_generation create_login_link roll_back roll_back_from drop_generation reload_config"
)
# Probes contain no tenant data; signed links are credentials themselves.
PUBLIC_OPERATIONS = frozenset({"livez", "readyz", "get_signed_file"})

OPERATIONS_BY_ROLE: Mapping[Role, str] = {
    "reader": READER_OPERATIONS,
    "writer": WRITER_OPERATIONS,
    "admin": ADMIN_OPERATIONS,
    "operator": OPERATOR_OPERATIONS,
}
# By operation id. Each role includes the permissions of the roles before it.
REQUIRED_ROLES: Mapping[str, Role] = {
    operation: role
    for role, operations in OPERATIONS_BY_ROLE.items()
    for operation in operations.split()
}


async def require_role(request: Request) -> None:
    """Raises Forbidden when the caller's role does not suffice."""
    operation = request.scope["route"].operation_id
    if operation in PUBLIC_OPERATIONS:
        return
    # An operation without a role raises KeyError, so that none is open by accident.
    principal, required_role = await get_caller(request), REQUIRED_ROLES[operation]
    if not principal.has_role(required_role):
        raise Forbidden(
            f"This operation requires the role {required_role!r}; the credential has "
            f"{principal.role!r}.",
            code="FORBIDDEN_ROLE",
            remedy=(
                f"Use a credential with the role {required_role!r}; an administrator creates one "
                "with `anabranch keys create`."
            ),
        )
    # An operator acts for another tenant, which that tenant's audit trail shows.
    if principal.home_tenant is not None:
        services = await get_services(request)
        await services.audit.record_visit(principal, request.scope.get("request_id"))
